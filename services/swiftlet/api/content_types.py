"""Content types, and what travels hidden behind them: the size and entity tag of a static large object.

A listing shows a large object with its whole size while the container's totals count the manifest only. So the
manifest's content type, which is stored with the object and with its row, ends with two parameters of our own.
Clients never see them and may not send any parameter whose name begins with `swift_`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from swiftlet.api.problems import ApiError

_RESERVED = re.compile(r";\s*swift_", re.IGNORECASE)
_MARK = re.compile(r";swift_bytes=([0-9]{1,19});swift_slo_etag=([0-9a-f]{32})$", re.ASCII)


@dataclass(frozen=True, slots=True)
class SloMark:
    """What a manifest's content type tells of the large object: size in bytes and entity tag, unquoted."""

    size: int
    etag: str


def check_content_type(content_type: str) -> str:
    """The content type that a client sent; 400 when it can't be kept."""
    try:
        content_type.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ApiError(400, "Content-Type is not valid UTF-8") from error
    if _RESERVED.search(content_type):
        raise ApiError(400, "Invalid Content-Type, swift_* is not a valid parameter name")
    return content_type


def with_mark(content_type: str, mark: SloMark) -> str:
    """The content type as it is stored with a manifest."""
    return f"{content_type};swift_bytes={mark.size};swift_slo_etag={mark.etag}"


def split_mark(stored: str) -> tuple[str, SloMark | None]:
    """The content type as clients see it, and the mark of a manifest."""
    if ";swift_bytes=" not in stored:
        return stored, None
    match = _MARK.search(stored)
    if match is None:
        return stored, None
    return stored[: match.start()], SloMark(int(match[1]), match[2])
