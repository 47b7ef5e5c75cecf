"""The two older ways to keep what is overwritten: in another container of the client's, as a stack or as a history.

https://docs.openstack.org/swift/latest/middleware.html#versioned-writes. A PUT first copies what it replaces to
`ARCHIVE/<length><object>/<timestamp>`: the length of the name in bytes as three hex digits, the time of the version. A
DELETE does the same and adds a delete marker (history), or brings the newest one back (stack). Rights are asked for
at the object only.

Fault model: of two writers at the same time, the one that is overtaken may replace or be replaced without a copy; a
container that is written to by several at once wants `X-Versions-Enabled`. A proxy that stops after the copy leaves one
copy more, under the same name as the next attempt's; one that stops in the middle of bringing a version back
leaves it in both places.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from swiftlet.api.core import Call
from swiftlet.api.duplicates import Place, duplicate
from swiftlet.api.policy_lookup import container_of
from swiftlet.api.problems import ApiError
from swiftlet.api.storing import Held, NewObject, store
from swiftlet.api.version_writes import look_again
from swiftlet.api.versioning import DELETE_MARKER, Archive
from swiftlet.errors import NotFound
from swiftlet.model import ListingQuery, ObjectRow, Subdir
from swiftlet.names import Path
from swiftlet.timestamp import Timestamp

_PAGE = 100


def archive_prefix(obj: str) -> str:
    """What the names of an object's older versions begin with."""
    return f"{len(obj.encode()):03x}{obj}/"


async def archive_current(call: Call, main: Place, archive: Archive) -> bool:
    """Copy what is at `main` to the archive; whether there was anything. 412 when there is no archive."""

    async def attempt() -> bool:
        try:
            info = await call.api.objects.head(main.path, main.policy, newest=True)
        except NotFound:
            return False
        target = await _place(call, main.path, archive, info.timestamp)
        await duplicate(call, main, info, target, info.timestamp)
        return True

    return await look_again(attempt)


async def _place(call: Call, path: Path, archive: Archive, timestamp: Timestamp) -> Place:
    assert path.obj is not None
    target = Path(path.account, archive.container, archive_prefix(path.obj) + timestamp.internal)
    try:
        return Place(target, (await container_of(call.api, target)).policy)
    except NotFound as error:
        raise ApiError(412, f"{error}, where older versions are kept") from error


async def push_deletion(call: Call, main: Place, archive: Archive) -> None:
    """What comes before a DELETE in a history: the copy, and an empty object that says when."""
    await archive_current(call, main, archive)
    timestamp = call.api.clock.next()
    place = await _place(call, main.path, archive, timestamp)
    await store(NewObject(call, place.path, DELETE_MARKER, {}, Held(b"")), place.policy, timestamp)


async def pop(call: Call, main: Place, archive: Archive) -> bool:
    """Bring the newest older version back in place of a DELETE; whether there was one, or a marker to go."""
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
    """The rows of an object's older versions, the newest first."""
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
    """Copy an older version back as the newest and remove it from the archive; False when it is gone."""
    source = await _row_place(call, main.path, archive, row)
    try:
        info = await call.api.objects.head(source.path, source.policy, newest=True)
        await duplicate(call, source, info, main, call.api.clock.next())
    except NotFound:
        return False
    await _forget(call, source)
    return True


async def _forget(call: Call, place: Place) -> None:
    await call.stamped(lambda timestamp: call.api.objects.delete(place.path, place.policy, timestamp))
