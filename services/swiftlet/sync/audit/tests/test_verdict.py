"""What is decided about one row."""

from __future__ import annotations

import pytest

from swiftlet.model import ObjectRow
from swiftlet.sync.audit.verdict import Merge, NoRepair, Replace, Wrong, judge
from swiftlet.timestamp import Timestamp


def row(second: float, size: int = 3, etag: str = "e", kind: str = "t", posted: float = 0) -> ObjectRow:
    stamps = Timestamp.at(second), Timestamp.at(posted) if posted else Timestamp(0)
    return ObjectRow("o", stamps[0], size, etag, kind, meta_timestamp=stamps[1])


def gone(second: float) -> ObjectRow:
    return ObjectRow("o", Timestamp.at(second), deleted=True)


@pytest.mark.parametrize(
    ("listed", "truth", "complete", "expected"),
    [
        (row(5), row(5), False, NoRepair.FINE),
        (None, None, True, NoRepair.FINE),
        (gone(5), None, True, NoRepair.FINE),
        (None, gone(5), True, NoRepair.FINE),
        (None, row(5), False, Merge(row(5), Wrong.MISSING)),
        (gone(4), row(5), False, Merge(row(5), Wrong.MISSING)),
        (gone(6), row(5), False, NoRepair.UNDECIDED),
        (gone(6), row(5), True, Replace(gone(6), row(5), Wrong.MISSING)),
        (row(5), gone(6), False, Merge(gone(6), Wrong.GHOST)),
        (row(5), gone(4), False, NoRepair.UNDECIDED),
        (row(5), gone(4), True, Merge(gone(5), Wrong.GHOST)),
        (row(5), None, False, NoRepair.UNDECIDED),
        (row(5), None, True, Merge(gone(5), Wrong.GHOST)),
        (row(4, etag="old"), row(5), False, Merge(row(5), Wrong.ETAG)),
        (row(5, size=9), row(5), False, NoRepair.UNDECIDED),
        (row(5, size=9), row(5), True, Replace(row(5, size=9), row(5), Wrong.SIZE)),
        (row(6, etag="new"), row(5), True, Replace(row(6, etag="new"), row(5), Wrong.ETAG)),
        (row(5, kind="u"), row(5), True, Replace(row(5, kind="u"), row(5), Wrong.CONTENT_TYPE)),
        (row(5), row(5, posted=7), False, Merge(row(5, posted=7), Wrong.TIME)),
        (row(5, posted=7), row(5), True, Replace(row(5, posted=7), row(5), Wrong.TIME)),
    ],
)
def test_verdict(listed: ObjectRow | None, truth: ObjectRow | None, complete: bool, expected: object) -> None:
    assert judge(listed, truth, complete) == expected
