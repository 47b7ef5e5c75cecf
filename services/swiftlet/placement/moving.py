"""Objects of a container that moves from one storage policy to another: reading, writing, and moving one of them.

Objects go from the source to the target only, one after the other. Whatever is stored in the target is a *moment* later
than it would be in the source, so that neither the tombstone with which an object leaves the source nor a listing's row
of it, whenever that arrives, counts against the copy. The order of the two policies matters in each of these methods;
each says why.

Fault model: any caller may be killed between two steps, any number of movers may work on one object, and proxies may
know for a while longer that objects are written to the source. `docs/design/2026-11-29-policy-move.md` has the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from swiftlet_native import Hasher

from swiftlet.errors import NotFound, Superseded, SwiftletError, Unavailable
from swiftlet.model import ObjectInfo, PostRecord, PutFooter, PutRecord
from swiftlet.names import Path
from swiftlet.placement.cluster_objects import ClusterObjects
from swiftlet.placement.outcomes import Written
from swiftlet.placement.transfers import Download, Upload
from swiftlet.policy_moves import Phase, PolicyMove
from swiftlet.timestamp import ZERO, Timestamp

ATTEMPTS = 5
"""How often an object that changes meanwhile is looked up, or moved, before the caller has to try again."""

Prepare: TypeAlias = Callable[[ObjectInfo], Awaitable[None]]
"""What has to be done about a version before its copy may exist."""


async def nothing(_info: ObjectInfo) -> None:
    """Return at once: a version may be copied as it is."""


def moment_after(timestamp: Timestamp) -> Timestamp:
    """Return the next timestamp there is: that of the copy in the target."""
    return Timestamp(timestamp.value + 1)


@dataclass(frozen=True, slots=True)
class Move:
    """A container's move between policies, by their indexes; `into` is the one that PUTs go to."""

    source: int
    target: int
    into: int
    is_settled: bool = False
    """Whether the source is looked at only for what the target does not have."""

    @classmethod
    def of(cls, state: PolicyMove) -> Move:
        """Return what the state of a container says."""
        return cls(state.source, state.target, state.policy, state.phase is Phase.SETTLED)


class Moved(Enum):
    """What became of an object that was to be moved."""

    MOVED = "moved"
    ABSENT = "absent"
    """The source has none."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What a policy has of an object: its newest version, or the time of its deletion."""

    policy: int
    info: ObjectInfo | None
    deleted: Timestamp = ZERO

    @property
    def newest(self) -> Timestamp:
        """What a write has to beat."""
        return self.deleted if self.info is None else self.info.timestamp


class MovingObjects:
    """The objects of one container that moves."""

    def __init__(self, objects: ClusterObjects, move: Move) -> None:
        """`objects` are those of all policies."""
        self._objects = objects
        self._move = move

    async def _look(self, path: Path, policy: int) -> _Found:
        try:
            return _Found(policy, await self._objects.head(path, policy, newest=True))
        except NotFound as absence:
            return _Found(policy, None, absence.timestamp or ZERO)

    async def _newest(self, path: Path) -> tuple[int, ObjectInfo]:
        """Return the policy of the newest data, and the object as both policies together have it. Raises NotFound.

        The target is asked once the source has answered: an object that left the source before is in the target by
        then.
        """
        both = [await self._look(path, self._move.source), await self._look(path, self._move.target)]
        deleted = max(one.deleted for one in both)
        there = [(one.policy, one.info) for one in both if one.info is not None and one.info.timestamp > deleted]
        if not there:
            raise NotFound(f"{path} does not exist", deleted or None)
        policy, newest = max(there, key=lambda one: one[1].timestamp)
        for _, info in there:
            if info.meta_timestamp > max(newest.meta_timestamp, newest.timestamp):
                newest = replace(newest, metadata=info.metadata, meta_timestamp=info.meta_timestamp)
            if info.content_type_timestamp > max(newest.content_type_timestamp, newest.timestamp):
                typed = info.content_type_timestamp
                newest = replace(newest, content_type=info.content_type, content_type_timestamp=typed)
        return policy, newest

    async def head(self, path: Path, newest: bool = True) -> ObjectInfo:
        """Return the description of the newest version; with `newest` False of the first one that is found where the
        move is settled. Raises NotFound and Unavailable.
        """
        if self._move.is_settled:
            with suppress(NotFound):
                return await self._objects.head(path, self._move.target, newest)
        return (await self._newest(path))[1]

    async def get(
        self,
        path: Path,
        start: int = 0,
        stop: int | None = None,
        newest: bool = True,
        version: Timestamp | None = None,
    ) -> Download:
        """Open bytes `[start, stop)` of the newest version, or of one `version` only, perhaps of its copy.

        With `newest` False it is the first one that is found where the move is settled. Raises NotFound, and
        Unavailable also when the object changes faster than it can be opened.
        """
        if version is not None:
            return await self._version(path, start, stop, version)
        if self._move.is_settled:
            with suppress(NotFound):
                return await self._objects.get(path, self._move.target, start, stop, newest)
        for _ in range(ATTEMPTS):
            policy, info = await self._newest(path)
            try:
                download = await self._objects.get(path, policy, start, stop, newest=True)
            except NotFound:
                continue
            if download.info.timestamp == info.timestamp:
                # The other policy may have the newer POST.
                download.info = info if info.meta_timestamp > download.info.meta_timestamp else download.info
                return download
            await download.close()
        raise Unavailable(f"{path} changes faster than it can be opened; try again")

    async def _version(self, path: Path, start: int, stop: int | None, version: Timestamp) -> Download:
        """Open one version: in the source, or in the target, where its copy is a moment later."""
        target = (self._move.target, version), (self._move.target, moment_after(version))
        places = ((self._move.source, version), *target)
        errors: list[SwiftletError] = []
        for policy, timestamp in (*target, *places) if self._move.is_settled else places:
            try:
                return await self._objects.get(path, policy, start, stop, version=timestamp)
            except (NotFound, Unavailable) as error:  # Unavailable is also what has another version only.
                errors.append(error)
        raise next((error for error in errors if isinstance(error, Unavailable)), errors[-1])

    async def _beat(self, path: Path, timestamp: Timestamp) -> None:
        """Raise Superseded when the policy that is not written to has something as new."""
        other = self._move.source if self._move.into == self._move.target else self._move.target
        newest = (await self._look(path, other)).newest
        if newest >= timestamp:
            raise Superseded(f"{path} is already at {newest}", newest)

    async def put(self, path: Path, record: PutRecord, body: bytes, footer: PutFooter) -> Written:
        """Store a small object. Raises Superseded and Unavailable."""
        await self._beat(path, record.timestamp)
        return await self._objects.put(path, self._move.into, record, body, footer)

    async def upload(self, path: Path, record: PutRecord, size: int | None) -> Upload:
        """Begin a streamed object. Raises Superseded and Unavailable."""
        await self._beat(path, record.timestamp)
        return await self._objects.upload(path, self._move.into, record, size)

    async def delete(self, path: Path, timestamp: Timestamp) -> Written:
        """Delete an object in both policies. Raises Superseded and Unavailable.

        The target is first: if the caller is killed between both, a mover that has read the source before can't bring
        a copy into the target any more.
        """
        return await _in_both(
            lambda: self._objects.delete(path, self._move.target, moment_after(timestamp)),
            lambda: self._objects.delete(path, self._move.source, timestamp),
        )

    async def post(self, path: Path, record: PostRecord) -> Written:
        """Replace metadata. Raises NotFound, Superseded and Unavailable.

        The source is first: if the target does not have the object after that, no mover has copied it yet, and each
        looks at the source again once it has.
        """
        return await _in_both(
            lambda: self._objects.post(path, self._move.source, record),
            lambda: self._objects.post(path, self._move.target, record),
        )

    async def left(self, path: Path) -> ObjectInfo | None:
        """Return what the source has of an object, None for nothing. Raises Unavailable."""
        return (await self._look(path, self._move.source)).info

    async def delete_again(self, path: Path, at: Timestamp) -> bool:
        """Complete a deletion of which the listing knows, and whose caller may have been killed between both policies;
        return whether either had an object that is not newer. Raises Unavailable.
        """
        repeated = False
        for policy in (self._move.target, self._move.source):
            info = (await self._look(path, policy)).info
            if info is None or info.timestamp > at:
                continue
            with suppress(Superseded, NotFound):
                await self._objects.delete(path, policy, at)
                repeated = True
        return repeated

    async def move(self, path: Path, pace: Callable[[int], Awaitable[None]], prepare: Prepare = nothing) -> Moved:
        """Move one object, unless the source has none. Raises Unavailable, also when what was copied is not what is
        read back; then it stays in the source.

        `pace` is awaited with a number of bytes before these are sent, and `prepare` with each version that is copied
        before it is.
        """
        moved = Moved.ABSENT
        for _ in range(ATTEMPTS):
            found = (await self._look(path, self._move.source)).info
            if found is None:
                return moved
            await prepare(found)
            await self._copy(path, found, pace)
            await self._verify(path, found)
            # A POST that did not find the copy yet is in the source by now.
            if (await self._look(path, self._move.source)).info != found:
                continue
            try:
                await self._objects.delete(path, self._move.source, found.timestamp)
            except Superseded:
                continue
            moved = Moved.MOVED
        raise Unavailable(f"{path} changes faster than it can be moved; try again")

    async def _copy(self, path: Path, info: ObjectInfo, pace: Callable[[int], Awaitable[None]]) -> None:
        """Store a version in the target. It stays away where that has it, or something newer."""
        record = PutRecord(info.name, moment_after(info.timestamp), info.content_type, info.metadata, info.sysmeta)
        try:
            if (await self._look(path, self._move.target)).newest < record.timestamp:
                await self._send(path, info, record, pace)
            if info.meta_timestamp > info.timestamp:
                await self._objects.post(path, self._move.target, _post_of(info))
        except (Superseded, NotFound):
            return

    async def _send(
        self, path: Path, info: ObjectInfo, record: PutRecord, pace: Callable[[int], Awaitable[None]]
    ) -> None:
        download = await self._objects.get(path, self._move.source, newest=True, version=info.timestamp)
        try:
            upload = await self._objects.upload(path, self._move.target, record, info.size)
            try:
                hasher = Hasher(md5=False)
                async for chunk in download.chunks():
                    await pace(len(chunk))
                    hasher.update(chunk)
                    await upload.write(chunk)
                if hasher.size != info.size or info.xxh3 not in (None, hasher.xxh3_64()):
                    raise Unavailable(f"{path}: what was read from the source is not what was stored there")
                await upload.commit(PutFooter(info.size, info.etag, hasher.xxh3_64()))
            finally:
                await upload.abort()
        finally:
            await download.close()

    async def _verify(self, path: Path, info: ObjectInfo) -> None:
        """Read back the copy. Raises Unavailable unless the target has it whole, or something newer."""
        copy = await self._look(path, self._move.target)
        wanted = moment_after(info.timestamp)
        if copy.newest > wanted or (copy.info is None and copy.newest == wanted):
            return
        if copy.info is None or copy.newest < wanted:
            raise Unavailable(f"{path} was stored in policy {self._move.target}, but is not found there; try again")
        if (copy.info.etag, dict(copy.info.sysmeta)) != (info.etag, dict(info.sysmeta)):
            raise Unavailable(f"{path} has another ETag or other system metadata in policy {self._move.target}")
        # Of an object with erasure coding no digest of the whole is kept.
        xxh3 = info.xxh3
        if xxh3 is None:
            xxh3 = (await self._hashed(path, self._move.source, info.timestamp))[1]
        if (info.size, xxh3) != await self._hashed(path, self._move.target, wanted):
            raise Unavailable(f"{path}: what was read back from policy {self._move.target} is not what was stored")

    async def _hashed(self, path: Path, policy: int, version: Timestamp) -> tuple[int, int]:
        """Read a version; return its size and xxh3."""
        download, hasher = await self._objects.get(path, policy, newest=True, version=version), Hasher(md5=False)
        try:
            async for chunk in download.chunks():
                hasher.update(chunk)
        finally:
            await download.close()
        return hasher.size, hasher.xxh3_64()


async def _in_both(*calls: Callable[[], Awaitable[Written]]) -> Written:
    """Write to one policy, then to the other; absence in one of them is no error. Raises Superseded when either has
    something newer.
    """
    written: list[Written] = []
    superseded: list[Superseded] = []
    absent: list[NotFound] = []
    for call in calls:
        try:
            written.append(await call())
        except Superseded as error:
            superseded.append(error)
        except NotFound as error:
            absent.append(error)
    if superseded:
        raise max(superseded, key=lambda error: error.timestamp)
    if not written:
        raise max(absent, key=lambda error: error.timestamp or ZERO)
    return Written(any(one.existed for one in written), any(one.container_missing for one in written))


def _post_of(info: ObjectInfo) -> PostRecord:
    """Return the newest POST of an object, with the content type that holds since."""
    if info.content_type_timestamp > info.timestamp:
        return PostRecord(info.meta_timestamp, info.metadata, info.content_type, info.content_type_timestamp)
    return PostRecord(info.meta_timestamp, info.metadata)
