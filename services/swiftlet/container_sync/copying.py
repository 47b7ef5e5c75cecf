"""Brings rows of a container to its copy: what a row asks for, and doing it.

A row is compared with the copy's listing first. Only where that lacks it, or has something older, the copy is asked for
the object itself, because listings may be late, and then the object or its deletion is sent with its own timestamp.
What is newer there stays. So copies in both directions, in chains or in circles come to an end: nothing is sent where
an equal or newer version is.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import structlog
from prometheus_client import Counter

from swiftlet.container_sync.peer import LISTING_ROWS, Listed, Peer, PeerFailed
from swiftlet.errors import NotFound, SwiftletError
from swiftlet.model import ObjectInfo, ObjectRow
from swiftlet.names import Path
from swiftlet.placement.routing import AnyObjects
from swiftlet.placement.transfers import Download
from swiftlet.timestamp import Timestamp

Describe = Callable[[ObjectInfo], Mapping[str, str] | None]
"""A function that returns the headers with which another cluster stores an object; None for one that is not copied."""
SETTLED = 2000
"""The number of objects of a container that are remembered as settled although the copy's listing has none of them: the
copy has a newer deletion, or they are not copied.
"""

OBJECTS = Counter(
    "swiftlet_container_sync_objects_total",
    "Objects that a copy lacked: sent, deleted, settled (the copy has something as new after all, or the object is "
    "not copied) or failed (tried again).",
    ["outcome"],
)
BYTES = Counter("swiftlet_container_sync_bytes_total", "Bytes of objects sent to other clusters.")
_log = structlog.get_logger("container-sync")


class RemoteListing:
    """The copy's listing, read page by page beside rows in order."""

    def __init__(self, peer: Peer) -> None:
        """Begin with the first name that is asked for."""
        self._peer = peer
        self._known: dict[str, int] = {}
        self._upto = ""
        self._ended = False

    async def beside(self, rows: Sequence[ObjectRow]) -> Mapping[str, int]:
        """Return when the copy's objects of these names were modified, in ticks; rows are in order. Raises
        PeerFailed.
        """
        found = {}
        for row in rows:
            while row.name > self._upto and not self._ended:
                await self._next(row.name)
            ticks = self._known.get(row.name)
            if ticks is not None:
                found[row.name] = ticks
        return found

    async def _next(self, name: str) -> None:
        """Read the next page, from a name shortly before `name` where that skips something."""
        after = max(self._upto, name[:-1])
        page = await self._peer.page(after)
        if any(one.name <= after for one in page[:1]) or _is_unordered(page):
            raise PeerFailed("the copy's listing is not in order")
        self._known = {one.name: one.ticks for one in page}
        self._ended = len(page) < LISTING_ROWS
        self._upto = page[-1].name if page else after


def _is_unordered(page: Sequence[Listed]) -> bool:
    return any(one.name >= other.name for one, other in itertools.pairwise(page))


def is_due(row: ObjectRow, there: int | None) -> bool:
    """Return whether the copy lacks what a row tells; `there` is what its listing has, in ticks."""
    if row.deleted:
        return there is not None and there < row.timestamp.ticks
    return there is None or there < row.modified.ticks


class Copying:
    """Sends objects of one container to one copy."""

    def __init__(
        self,
        place: Path,
        policy: int,
        peer: Peer,
        objects: AnyObjects,
        describe: Describe,
        gate: asyncio.Semaphore,
        settled: OrderedDict[str, int],
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """`place` is the container; `gate` bounds the objects in progress; `settled` remembers between rounds. Once it
        `is_over` no object is begun.
        """
        self._place = place
        self._policy = policy
        self._peer = peer
        self._objects = objects
        self._describe = describe
        self._gate = gate
        self._settled = settled
        self._is_over = is_over
        self._failure: PeerFailed | None = None
        self.failed = 0
        """The number of objects that could not be brought."""
        self.postponed = 0
        """The number of objects that were not begun any more."""

    async def bring(self, rows: Sequence[ObjectRow]) -> None:
        """Bring what rows tell to the copy. Raises PeerFailed, once no request is in progress any more."""
        async with asyncio.TaskGroup() as group:
            for row in rows:
                group.create_task(self._one(row))
        if self._failure is not None:
            raise self._failure

    async def _one(self, row: ObjectRow) -> None:
        at = row.timestamp if row.deleted else row.modified
        if self._settled.get(row.name) == at.ticks:
            return
        async with self._gate:
            if self._failure is not None:
                return
            if self._is_over():
                self.postponed += 1
                return
            try:
                outcome = await (self._delete(row.name, at) if row.deleted else self._send(row.name, at))
            except PeerFailed as error:
                self._failure = error
                return
            except SwiftletError as error:
                self.failed += 1
                OBJECTS.labels("failed").inc()
                _log.warning("an object could not be copied yet", object=self._path(row.name), error=str(error))
                return
        OBJECTS.labels(outcome).inc()

    def _path(self, name: str) -> str:
        return Path(self._place.account, self._place.container, name).quoted

    def _settle(self, name: str, at: Timestamp) -> None:
        self._settled[name] = at.ticks
        self._settled.move_to_end(name)
        while len(self._settled) > SETTLED:
            self._settled.popitem(last=False)

    async def _delete(self, name: str, at: Timestamp) -> str:
        await self._peer.delete(name, at)
        return "deleted"

    async def _send(self, name: str, at: Timestamp) -> str:
        there = await self._peer.modified(name, at)
        if there is not None and there >= at.ticks:
            return "settled"
        path = Path(self._place.account, self._place.container, name)
        download = await self._objects.get(path, self._policy, newest=True)
        try:
            info = download.info
            if info.modified < at:
                raise NotFound(f"{path.quoted} is listed as of {at}, and its devices have {info.modified}")
            headers = self._describe(info)
            source = _Source(download)
            if headers is None or not await self._put(name, headers, source):
                self._settle(name, at)
                return "settled"
        finally:
            await download.close()
        BYTES.inc(info.size)
        return "sent"

    async def _put(self, name: str, headers: Mapping[str, str], source: _Source) -> bool:
        try:
            return await self._peer.put(name, headers, source.chunks(), source.size)
        except PeerFailed as error:
            if source.error is not None:
                raise source.error from error
            raise


class _Source:
    """The bytes of an object, and the error that ended them: no fault of the other cluster."""

    def __init__(self, download: Download) -> None:
        self._download = download
        self.size = download.info.size
        self.error: SwiftletError | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._download.chunks():
                yield chunk
        except SwiftletError as error:
            self.error = error
            raise
