"""Content types, and what is hidden behind them: the size and entity tag of a large object, or a link's target.

A listing shows a large object with its whole size while the container's totals count only the manifest, and a symbolic
link with its target. So the content type of a manifest or link, which is stored with the object and with its row, ends
with parameters of our own. Clients never see them and may not send any whose name begins with `swift_`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from swiftlet.api.http.problems import ApiError
from swiftlet.names import Path

_RESERVED = re.compile(r";\s*swift_", re.IGNORECASE)
_MARK = re.compile(r";swift_bytes=([0-9]+);swift_slo_etag=([0-9a-f]{32})$", re.ASCII)
_LINK = re.compile(
    r";swift_link=([^;]+)(?:;swift_link_etag=([^;]+);swift_link_bytes=([0-9]+))?"
    r"(?:;swift_link_slo_etag=([0-9a-f]{32}))?$",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class SloMark:
    """The size in bytes and the entity tag (unquoted) of a large object, which its manifest's content type carries."""

    size: int
    etag: str


def check_content_type(content_type: str) -> str:
    """Return the content type that a client sent; 400 when it can't be stored."""
    try:
        content_type.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ApiError(400, "Content-Type is not valid UTF-8") from error
    if _RESERVED.search(content_type):
        raise ApiError(400, "Invalid Content-Type, swift_* is not a valid parameter name")
    return content_type


def with_mark(content_type: str, mark: SloMark) -> str:
    """Return the content type as it is stored with a manifest."""
    return f"{content_type};swift_bytes={mark.size};swift_slo_etag={mark.etag}"


@dataclass(frozen=True, slots=True)
class LinkMark:
    """The description of a link's target in the link's content type; only a static link's has more than the path."""

    target: Path
    etag: str | None = None
    """The entity tag of the target, unquoted."""
    size: int = 0
    """Bytes of the target as a GET shows them."""
    slo_etag: str | None = None
    """The large object's entity tag, unquoted, when the target is a static large object."""


def with_link(content_type: str, mark: LinkMark) -> str:
    """Return the content type as it is stored with a link."""
    stored = f"{content_type};swift_link={mark.target.quoted}"
    if mark.etag is not None:
        stored += f";swift_link_etag={quote(mark.etag, safe='')};swift_link_bytes={mark.size}"
    return stored if mark.slo_etag is None else f"{stored};swift_link_slo_etag={mark.slo_etag}"


def split_link(stored: str) -> tuple[str, LinkMark | None]:
    """Return the content type as clients see it, and the mark of a link."""
    match = _LINK.search(stored) if ";swift_link=" in stored else None
    if match is None:
        return stored, None
    account, container, obj = unquote(match[1]).removeprefix("/").split("/", 2)
    etag = None if match[2] is None else unquote(match[2])
    mark = LinkMark(Path(account, container, obj), etag, int(match[3] or 0), match[4])
    return stored[: match.start()], mark


def split_mark(stored: str) -> tuple[str, SloMark | None]:
    """Return the content type as clients see it, and the mark of a manifest."""
    plain, link = split_link(stored)
    match = _MARK.search(plain) if link is None and ";swift_bytes=" in plain else None
    if match is None:
        return plain, None
    return plain[: match.start()], SloMark(int(match[1]), match[2])


def retyped(stored: str, content_type: str) -> str:
    """Return another content type with the hidden parameters of the stored one."""
    return content_type + stored[len(split_mark(stored)[0]) :]
