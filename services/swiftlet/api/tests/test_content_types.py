"""What travels hidden behind a content type never becomes visible."""

from __future__ import annotations

import pytest

from swiftlet.api.http.content_types import LinkMark, SloMark, retyped, split_link, split_mark, with_link, with_mark
from swiftlet.names import Path

ETAG = "0" * 32


@pytest.mark.parametrize("size", [0, 5 << 30, (1 << 63) - 1, 10**19, 10**60])
def test_sizes_of_any_length_are_hidden(size: int) -> None:
    """Nested large objects multiply, so a size may have more digits than one of 64 bits."""
    mark = SloMark(size, ETAG)
    stored = with_mark("video/mp4;q=1", mark)
    assert split_mark(stored) == ("video/mp4;q=1", mark)
    assert split_mark(retyped(stored, "audio/ogg")) == ("audio/ogg", mark)
    link = LinkMark(Path("a", "c", "o"), ETAG, size, ETAG)
    assert split_link(with_link("video/mp4", link)) == ("video/mp4", link)
