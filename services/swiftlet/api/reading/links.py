"""Symbolic links as they are stored, and their targets.

A link is an object without bytes whose system metadata name its target. A client's links count against a limit and are
followed with the sender's rights; the links from an object to its current version (see `version_writes`) are the
proxy's own: they do not count, and lead to where no client gets otherwise. A static link also says which entity tag the
target must have; where links follow each other, each must fit the next. The proxy's own links are not checked for that:
each leads to one version by its name, and conditions on an object apply to its version.

Fault model: links may lead in circles, to missing objects, or to changed ones: 409 or 404 before any byte.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self

from swiftlet.api.http.content_types import LinkMark, split_mark, with_link
from swiftlet.api.http.problems import ApiError
from swiftlet.api.http.reserved import version_of
from swiftlet.api.reading.readables import LINK_TARGET, PlainObject, Reader, Stored
from swiftlet.errors import NotFound
from swiftlet.model import ObjectInfo
from swiftlet.names import Path
from swiftlet.timestamp import Timestamp

TARGET, ACCOUNT = "X-Symlink-Target", "X-Symlink-Target-Account"
TARGET_ETAG, TARGET_BYTES = "X-Symlink-Target-Etag", "X-Symlink-Target-Bytes"
_FOREIGN, _ETAG, _BYTES = "Symlink-Account", "Symlink-Etag", "Symlink-Bytes"
"""Keys in the system metadata, beside `LINK_TARGET`; the first is set when the client named the account."""


@dataclass(frozen=True, slots=True)
class Link:
    """The target of a link."""

    target: Path
    foreign: bool = False
    """Whether the client named the account."""
    etag: str | None = None
    """The entity tag that the target must have, unquoted; None for a dynamic link."""
    size: int = 0
    """Size in bytes of a static link's target."""
    slo_etag: str | None = None
    """The large object's entity tag, unquoted, when a static link's target is a static large object."""

    @classmethod
    def of(cls, info: ObjectInfo) -> Self | None:
        """Return the link that a stored object is, None if it is not a link."""
        sysmeta = info.sysmeta
        if LINK_TARGET not in sysmeta:
            return None
        account, container, obj = sysmeta[LINK_TARGET].removeprefix("/").split("/", 2)
        return cls(Path(account, container, obj), _FOREIGN in sysmeta, sysmeta.get(_ETAG), int(sysmeta.get(_BYTES, 0)))

    @property
    def version(self) -> Timestamp | None:
        """Return the version that it leads to, when it is the proxy's own."""
        found = version_of(self.target)
        return None if found is None else found[1]

    @property
    def sysmeta(self) -> dict[str, str]:
        """Return the link as it is stored."""
        stored = {LINK_TARGET: str(self.target)}
        if self.foreign:
            stored[_FOREIGN] = "True"
        if self.etag is not None:
            stored |= {_ETAG: self.etag, _BYTES: str(self.size)}
        return stored

    def typed(self, content_type: str) -> str:
        """Return the content type with what listings tell of the link."""
        return with_link(content_type, LinkMark(self.target, self.etag, self.size, self.slo_etag))

    @property
    def location(self) -> str:
        """Return the target's URL without scheme and host; a version's is that of its object."""
        found = version_of(self.target)
        if found is None:
            return f"/v1{self.target.quoted}"
        return f"/v1{found[0].quoted}?version-id={found[1].internal}"

    @property
    def headers(self) -> dict[str, str]:
        """Return the link as `symlink=get` shows it."""
        shown = {TARGET: self.location.split("/", 3)[3]}
        if self.foreign:
            shown[ACCOUNT] = Path(self.target.account).quoted.removeprefix("/")
        if self.etag is not None:
            shown |= {TARGET_ETAG: self.etag, TARGET_BYTES: str(self.size)}
        return shown


class LinkItself(PlainObject):
    """A link as `symlink=get` shows it, and as a copy of the link takes it."""

    def __init__(self, stored: Stored, link: Link) -> None:
        """Show `link`, which is stored as `stored`."""
        super().__init__(stored)
        self.link = link
        self.headers |= link.headers
        self.content_type = split_mark(stored.info.content_type)[0]


@dataclass(frozen=True, slots=True)
class Arrival:
    """The object that a chain of links led to."""

    stored: Stored
    last: Link | None = None
    """The last link of the chain."""


Open = Callable[[Path], Awaitable[Stored]]


def _other_etag(link: Link | None, own: str, wanted: str) -> str:
    """Return why a static link can't be followed, in the reference's words."""
    if link is not None:
        return f"{TARGET_ETAG} headers do not match"
    return f"Object Etag {own!r} does not match {TARGET_ETAG} header {wanted!r}"


async def follow(reader: Reader, stored: Stored, opened: Open | None = None, dynamic: bool = True) -> Arrival:
    """Return the object that a stored object leads to, itself when it is no link; the links on the way are closed.

    Raises 409 for too many links and for entity tags that do not fit, 404 for a missing target. `opened` opens targets
    (`reader.head` by default); without `dynamic` only static links are followed.
    """
    limit = reader.call.api.options.symlink.symloop_max
    last, count = None, 0
    wanted: str | None = None
    while True:
        link = Link.of(stored.info)
        own = link is not None and link.version is not None
        etag = stored.info.etag if link is None or link.etag is None else link.etag
        if wanted is not None and wanted != etag and not own:
            await stored.close()
            raise ApiError(409, _other_etag(link, etag, wanted))
        if link is None or not (dynamic or link.etag is not None):
            return Arrival(stored, last)
        await stored.close()
        if link.version is None:
            count += 1
            if count > limit:
                raise ApiError(409, f"Too many levels of symbolic links, maximum allowed is {limit}")
        try:
            stored = await (opened or reader.head)(link.target)
        except NotFound as error:
            raise NotFound(f"the target {link.location} of the symbolic link does not exist") from error
        last, wanted = link, wanted if own else link.etag


async def current_version(reader: Reader, stored: Stored, opened: Open | None = None) -> Stored:
    """Return the version that the proxy's own link leads to; anything else is returned unchanged, clients'
    links too.
    """
    link = Link.of(stored.info)
    if link is None or link.version is None:
        return stored
    await stored.close()
    return await (opened or reader.head)(link.target)
