"""Stores one new version of an object: small ones in one round trip per replica, large ones streamed.

The ETag (`swiftlet.api.http.etags`) and the integrity hash (xxh3) are computed in one native pass while data flows.
Nothing is committed before the last byte has arrived and the announced length and ETag match.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from swiftlet_native import Hasher

from swiftlet.api.context.core import ATTEMPTS
from swiftlet.api.context.new_object import NewObject
from swiftlet.api.http.etags import Etag
from swiftlet.api.writing.expiry_changes import expiry_changed
from swiftlet.api.writing.quota_checks import within_quota
from swiftlet.boundaries.bodies import Digester, Piece
from swiftlet.errors import NotFound, Superseded
from swiftlet.model import PutFooter, PutRecord
from swiftlet.placement.outcomes import Written
from swiftlet.placement.transfers import Upload
from swiftlet.timestamp import Timestamp, TimestampClock


def overtaken(clock: TimestampClock, error: Superseded) -> bool:
    """Return whether the newer version was written while this request ran.

    Then both writes were concurrent, and this one counts as having happened just before the other. If the newer
    timestamp is in the future of this clock, its writer's clock is ahead, and this write may really be the later one.
    """
    return error.timestamp <= clock.now()


@within_quota
async def store(new: NewObject, policy: int, timestamp: Timestamp | None = None) -> tuple[PutRecord, PutFooter]:
    """Store the object as of now; or as of `timestamp`, where a newer version stays and this one counts as stored
    before it.

    Raises 422, NotFound when the container was deleted meanwhile, Superseded and Unavailable.
    """
    assert new.body is not None
    record = PutRecord(
        str(new.path), timestamp or new.call.api.clock.next(), new.content_type, new.metadata, new.sysmeta
    )
    async with expiry_changed(new.call.api, new.path, policy, new.metadata, record.timestamp) as change:
        record, footer, written = await _written(new, policy, record, fixed=timestamp is not None)
        change.at, change.is_lost = record.timestamp, written.overtaken
        new.is_overtaken = written.overtaken
    return record, footer


async def _written(new: NewObject, policy: int, record: PutRecord, fixed: bool) -> tuple[PutRecord, PutFooter, Written]:
    assert new.body is not None
    pieces = new.body.pieces()
    etag = _etag(new, policy)
    hasher = etag.hasher()
    small_bytes, announced = new.call.api.options.small_object_bytes, new.body.announced
    beginning: list[Piece] = []
    ended = False
    if announced is None or announced <= small_bytes:
        beginning, ended = await _read_beginning(pieces, hasher, small_bytes)
    if ended:
        footer = _footer(etag, hasher)
        record, written = await _store_small(new, policy, record, b"".join(beginning), footer, fixed)
    else:
        record, footer, written = await _store_large(new, policy, record, beginning, pieces, hasher, etag, fixed)
    if written.container_missing:
        await _undo(new, policy)
    return record, footer, written


async def _read_beginning(pieces: AsyncIterator[Piece], hasher: Hasher, limit: int) -> tuple[list[Piece], bool]:
    """Return pieces until the end or until more than `limit` bytes are held, and whether the end was reached."""
    held: list[Piece] = []
    async for piece in pieces:
        hasher.update(piece)
        held.append(piece)
        if hasher.size > limit:
            return held, False
    return held, True


def _etag(new: NewObject, policy: int) -> Etag:
    if new.keeps_etag and new.copied is not None:
        return Etag.kept(new.copied)
    return Etag.of(new.call.api.options.etag_kind(policy), new.etag, new.copied)


def _footer(etag: Etag, hasher: Hasher) -> PutFooter:
    """Return the finished object's size and digests; 422 when the ETag differs from the required one."""
    return PutFooter(hasher.size, etag.made(hasher), hasher.xxh3_64())


async def _store_small(
    new: NewObject, policy: int, record: PutRecord, data: bytes, footer: PutFooter, fixed: bool
) -> tuple[PutRecord, Written]:
    clock = new.call.api.clock
    for attempt in range(ATTEMPTS):
        try:
            return record, await new.call.api.objects.put(new.path, policy, record, data, footer)
        except Superseded as error:
            if fixed or (overtaken(clock, error) and not new.is_last):
                break
            if attempt == ATTEMPTS - 1 or not clock.observe(error.timestamp):
                raise
            record = replace(record, timestamp=clock.next())
    return record, Written(existed=True, container_missing=False, overtaken=True)


async def _store_large(
    new: NewObject,
    policy: int,
    record: PutRecord,
    beginning: list[Piece],
    pieces: AsyncIterator[Piece],
    hasher: Hasher,
    etag: Etag,
    fixed: bool,
) -> tuple[PutRecord, PutFooter, Written]:
    digester = new.call.api.digester(hasher)
    sending = _Sending(new, policy, record, fixed)
    try:
        await sending.begin()
        while beginning:
            await sending.write(beginning.pop(0))
        async for piece in pieces:
            await digester.update(piece)
            await sending.write(piece)
        await digester.finish()
        footer = _footer(etag, hasher)
        written = await sending.commit(footer)
        return sending.record, footer, written
    except Superseded as error:
        if not fixed and (not sending.is_open or new.is_last or not overtaken(new.call.api.clock, error)):
            new.call.api.clock.observe(error.timestamp)
            raise
        return (
            sending.record,
            await _rest(etag, pieces, digester, hasher),
            Written(existed=True, container_missing=False, overtaken=True),
        )
    finally:
        digester.close()
        await sending.abort()


class _Sending:
    """An upload that begins once more with a newer timestamp when devices have something newer than the first one."""

    def __init__(self, new: NewObject, policy: int, record: PutRecord, fixed: bool) -> None:
        """The timestamp is that of `record`, and no other one if it is `fixed`."""
        self._new = new
        self._policy = policy
        self.record = record
        self._fixed = fixed
        self._upload: Upload | None = None
        self._held: list[Piece] = []
        """What was sent before devices were known to take the object."""

    @property
    def is_open(self) -> bool:
        """Whether devices are known to take the object as of this time."""
        return self._upload is not None and self._upload.is_open

    async def begin(self) -> None:
        """Begin with the first timestamp."""
        assert self._new.body is not None
        objects, size = self._new.call.api.objects, self._new.body.announced
        try:
            self._upload = await objects.begin_upload(self._new.path, self._policy, self.record, size)
        except Superseded as error:
            await self._anew(error)

    async def _anew(self, error: Superseded) -> Upload:
        """Begin again after what is there, with all that was sent in vain."""
        await self.abort()
        assert self._new.body is not None
        objects, size = self._new.call.api.objects, self._new.body.announced
        if self._fixed or not self._new.call.api.clock.observe(error.timestamp):
            raise error

        async def opened(timestamp: Timestamp) -> tuple[PutRecord, Upload]:
            record = replace(self.record, timestamp=timestamp)
            return record, await objects.upload(self._new.path, self._policy, record, size)

        self.record, upload = await self._new.call.stamped(opened)
        self._upload = upload
        held, self._held = self._held, []
        for piece in held:
            await upload.write(piece)
        return upload

    async def write(self, piece: Piece) -> None:
        """Send a piece. Raises Superseded and Unavailable."""
        assert self._upload is not None
        was_open = self.is_open
        try:
            await self._upload.write(piece)
        except Superseded as error:
            if self.is_open:
                raise
            await (await self._anew(error)).write(piece)
            return
        if was_open or self.is_open:
            self._held.clear()
        else:
            self._held.append(piece)

    async def commit(self, footer: PutFooter) -> Written:
        """Make the object durable. Raises Superseded and Unavailable."""
        assert self._upload is not None
        try:
            return await self._upload.commit(footer)
        except Superseded as error:
            if self.is_open:
                raise
            return await (await self._anew(error)).commit(footer)

    async def abort(self) -> None:
        """Abort what is under way."""
        upload, self._upload = self._upload, None
        if upload is not None:
            await upload.abort()


async def _rest(etag: Etag, pieces: AsyncIterator[Piece], digester: Digester, hasher: Hasher) -> PutFooter:
    """Return the digests of a body that is not stored any more; it must still be complete and as announced."""
    async for piece in pieces:
        await digester.update(piece)
    await digester.finish()
    return _footer(etag, hasher)


async def _undo(new: NewObject, policy: int) -> None:
    """Delete what was just stored, and raise NotFound: another process has deleted the container."""
    api, container = new.call.api, new.path.container
    assert container is not None
    api.containers.forget(new.path.account, container)
    await api.objects.delete(new.path, policy, api.clock.next())
    raise NotFound(f"container {container!r} does not exist")
