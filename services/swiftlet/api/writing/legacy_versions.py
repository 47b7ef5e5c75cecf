"""The two older ways to keep what is overwritten: in another container of the client's, as a stack or as a history.

https://docs.openstack.org/swift/latest/middleware.html#versioned-writes. A PUT first copies what it replaces to
`ARCHIVE/<length><object>/<timestamp>`: the length of the name in bytes as three hex digits, the time of the version. A
DELETE does the same and adds a delete marker (history), or brings the newest one back (stack). Rights are checked for
the object only.

No version is lost among concurrent writers (in the reference they may be): each holds a lock (`object_locks`) from the
last look at what it replaces until that is replaced. The copy is made before the body arrives, and once more under the
lock only if another writer was faster meanwhile. A large object whose upload began before the version that is now
stored is refused (409).

Fault model: a proxy that stops, or is refused, after the copy leaves one copy more, under the same name as the next
attempt's; one that stops in the middle of restoring a version leaves it in both places. Without a quorum of account
servers there are no locks, and nothing is replaced (503).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

from swiftlet.api.context.core import Call
from swiftlet.api.context.new_object import Held, Incoming, NewObject
from swiftlet.api.context.policy_lookup import container_of
from swiftlet.api.http.problems import ApiError
from swiftlet.api.reading.versioning import DELETE_MARKER, Archive
from swiftlet.api.writing.duplicates import Place, duplicate
from swiftlet.api.writing.expiry_changes import delete_expiring
from swiftlet.api.writing.object_locks import locked
from swiftlet.api.writing.storing import store
from swiftlet.api.writing.version_writes import look_again
from swiftlet.boundaries.bodies import Piece
from swiftlet.errors import NotFound
from swiftlet.model import ListingQuery, ObjectRow, PutFooter, PutRecord, Subdir
from swiftlet.names import Path
from swiftlet.timestamp import Timestamp

_PAGE = 100


def archive_prefix(obj: str) -> str:
    """Return the beginning of the names of an object's older versions."""
    return f"{len(obj.encode()):03x}{obj}/"


async def archive_current(
    call: Call, main: Place, archive: Archive, known: Timestamp | None = None
) -> Timestamp | None:
    """Copy what is at `main` to the archive, unless it is the version `known`; return its version, None for nothing.

    Raises 412 when there is no archive.
    """

    async def attempt() -> Timestamp | None:
        try:
            info = await call.api.objects.head(main.path, main.policy, newest=True)
        except NotFound:
            return None
        if info.timestamp != known:
            target = await _place(call, main.path, archive, info.timestamp)
            await duplicate(call, main, info, target, info.timestamp)
        return info.timestamp

    return await look_again(attempt)


class _InTurn:
    """A body at whose end the writer has the lock, and what it replaces has been copied."""

    def __init__(self, body: Incoming, begin: Callable[[], Awaitable[None]]) -> None:
        self._body = body
        self._begin = begin
        self.announced = body.announced

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield the pieces of the body, then archive the current version."""
        async for piece in self._body.pieces():
            yield piece
        await self._begin()


async def put_locked(new: NewObject, main: Place, archive: Archive) -> tuple[PutRecord, PutFooter]:
    """Store a new object in a container that archives what is replaced."""
    call = new.call
    copied = await archive_current(call, main, archive)
    assert new.body is not None
    async with AsyncExitStack() as stack:

        async def begin() -> None:
            mine = await stack.enter_async_context(locked(call.api, main.path))
            await archive_current(call, main, archive, known=copied)
            mine.check()

        new.body, new.is_last = _InTurn(new.body, begin), True
        return await store(new, main.policy)


async def delete_locked(call: Call, main: Place, archive: Archive, delete: Callable[[], Awaitable[None]]) -> None:
    """Carry out a DELETE; `delete` removes the object, and is not called when an older version replaced it."""
    async with locked(call.api, main.path) as mine:
        if archive.history:
            await push_deletion(call, main, archive)
        elif await pop(call, main, archive):
            return
        mine.check()
        await delete()


async def _place(call: Call, path: Path, archive: Archive, timestamp: Timestamp) -> Place:
    assert path.obj is not None
    target = Path(path.account, archive.container, archive_prefix(path.obj) + timestamp.internal)
    try:
        return Place(target, (await container_of(call.api, target)).policy)
    except NotFound as error:
        raise ApiError(412, f"{error}, but older versions of this container's objects are kept there") from error


async def push_deletion(call: Call, main: Place, archive: Archive) -> None:
    """Copy the object before a DELETE in a history, and store an empty object that records the time."""
    await archive_current(call, main, archive)
    timestamp = call.api.clock.next()
    place = await _place(call, main.path, archive, timestamp)
    await store(NewObject(call, place.path, DELETE_MARKER, {}, Held(b"")), place.policy, timestamp)


async def pop(call: Call, main: Place, archive: Archive) -> bool:
    """Restore the newest older version in place of a DELETE; return whether there was one, or a marker to remove."""
    older = _older(call, main.path, archive)
    async for row in older:
        if row.content_type != DELETE_MARKER:
            if await _restore(call, main, archive, row):
                return True
            continue
        if await _exists(call, main):
            return False
        async for below in older:
            if below.content_type == DELETE_MARKER or await _restore(call, main, archive, below):
                break
        await _forget(call, await _row_place(call, main.path, archive, row))
        return True
    return False


async def _older(call: Call, path: Path, archive: Archive) -> AsyncIterator[ObjectRow]:
    """Yield the rows of an object's older versions, the newest first."""
    assert path.obj is not None
    prefix, marker = archive_prefix(path.obj), ""
    while True:
        query = ListingQuery(limit=_PAGE, marker=marker, prefix=prefix, reverse=True)
        try:
            _, rows = await call.api.listings.list_objects(path.account, archive.container, query)
        except NotFound:
            return
        for row in rows:
            if not isinstance(row, Subdir):
                yield row
        if len(rows) < _PAGE:
            return
        marker = rows[-1].name


async def _row_place(call: Call, path: Path, archive: Archive, row: ObjectRow) -> Place:
    target = Path(path.account, archive.container, row.name)
    return Place(target, (await container_of(call.api, target)).policy)


async def _exists(call: Call, place: Place) -> bool:
    try:
        await call.api.objects.head(place.path, place.policy, newest=True)
    except NotFound:
        return False
    return True


async def _restore(call: Call, main: Place, archive: Archive, row: ObjectRow) -> bool:
    """Copy an older version back as the newest and remove it from the archive; return False when it is missing."""
    source = await _row_place(call, main.path, archive, row)
    try:
        info = await call.api.objects.head(source.path, source.policy, newest=True)
        await duplicate(call, source, info, main, call.api.clock.next())
    except NotFound:
        return False
    await _forget(call, source)
    return True


async def _forget(call: Call, place: Place) -> None:
    await call.stamped(lambda timestamp: delete_expiring(call.api, place.path, place.policy, timestamp))
