"""Objects with erasure coding: which devices have their fragments, who stands in, what an end means for the caller.

A write goes to the devices of the partition's places; the handoffs stand in for those that do not answer. What
acknowledges it, which version is the newest, and what replaces a missing cell is decided by native code
(`native/crates/fragments`), for all who write and read. As with copies, the device of each place keeps the row for some
replicas of the container; a row that no device keeps is durable with replicas before a write is acknowledged.

Fault model: as many devices as there are parity fragments may be away, in any pattern; with more, a write and a read
end as Unavailable, which names them. A write that ends so may turn out to have happened.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from swiftlet.boundaries.coded import (
    CodedEnd,
    CodedGetStream,
    CodedPlaces,
    CodedPutStream,
    CodedTransport,
    CodedWriteEnded,
    PendingRow,
    Refused,
    TooFewFragments,
)
from swiftlet.boundaries.objects import ContainerUpdate, WriteReply
from swiftlet.errors import NotFound, SizeMismatch, Superseded, SwiftletError, Unavailable
from swiftlet.model import ObjectInfo, ObjectKey, ObjectRow, PostRecord, PutFooter, PutRecord
from swiftlet.names import HashPath, Path
from swiftlet.placement.fanout import NODE_TROUBLE
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.outcomes import Written, row_of
from swiftlet.placement.plan import ANYWHERE, Place
from swiftlet.placement.rings import ObjectRings
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Coding, Device, RingError
from swiftlet.timestamp import Timestamp

Codings = Callable[[int], Coding | None]
"""A function that returns the coding of a policy by its index; None for one with copies."""
PackBelow = Callable[[int], int]
"""A function that returns up to how many bytes an object of a policy is small; 0 if none is."""


def none_small(_policy: int) -> int:
    """Return 0: all objects are coded, the small ones too."""
    return 0


def of_copies(_policy: int) -> Coding | None:
    """Return None: all policies have copies."""
    return None


class CodedRow(Protocol):
    """The row of a write; told of the devices that have it pending."""

    @property
    def is_listed(self) -> bool:
        """Return whether some replica of the container has it durably."""
        ...

    def share(self, slot: int) -> ContainerUpdate:
        """Return the container replicas for which a slot keeps the row."""
        ...

    def replied(self, slot: int, device: Device, reply: WriteReply) -> None:
        """Note that a device has the row pending for a slot."""
        ...

    async def finish(self, row: ObjectRow | None) -> bool:
        """Wait until the row is listed, within bounds; return whether the container is missing."""
        ...


class CodedRows(Protocol):
    """Makes the rows of writes."""

    def delivery(
        self,
        path: Path,
        key: ObjectKey,
        timestamp: Timestamp,
        slots: int,
        key_at: Callable[[int], ObjectKey] | None = None,
    ) -> CodedRow:
        """Return the row of a write with so many slots, the devices of which keep it under the keys of `key_at`."""
        ...


class CodedObjects:
    """The objects of all policies with erasure coding."""

    def __init__(
        self,
        rings: ObjectRings,
        transport: CodedTransport,
        rows: CodedRows,
        hash_path: HashPath,
        health: NodeHealth,
        codings: Codings,
        place: Place = ANYWHERE,
        pack_below: PackBelow = none_small,
        shuffle: Callable[[list[int]], None] = random.shuffle,
        hedged: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Devices near `place` are asked first; `shuffle` puts those in order that are as near. Objects of up to
        `pack_below` bytes are written as copies; those that are there are read whatever it says. `hedged` is told how
        often a read has asked others in the place of a device that was late, if it has.
        """
        self._rings = rings
        self._transport = transport
        self._rows = rows
        self._hash_path = hash_path
        self._health = health
        self._codings = codings
        self._place = place
        self._pack_below = pack_below
        self._shuffle = shuffle
        self._hedged = hedged
        self._sound: dict[int, Ring] = {}
        """The rings that fit the coding of their policy."""

    def places(self, path: Path, policy: int) -> CodedPlaces:
        """Return where an object's fragments are. Raises Unavailable when the policy's ring can't have them."""
        ring, coding = self._rings.objects(policy), self._codings(policy)
        assert coding is not None
        if self._sound.get(policy) is not ring:
            try:
                coding.check_ring(ring.part_power, ring.replica_count)
            except RingError as error:
                raise Unavailable(f"storage policy {policy}: {error}") from error
            self._sound[policy] = ring
        digest = self._hash_path.of(path)
        key = ObjectKey(policy, ring.partition_of(digest), digest)
        return CodedPlaces.in_ring(key, coding, ring, coding.parity)

    async def put(self, path: Path, policy: int, record: PutRecord, body: bytes, footer: PutFooter) -> Written:
        """Store an object whose bytes are there. Raises Superseded and Unavailable."""
        most = self._pack_below(policy)
        if most and footer.size <= most:
            return await self._put_small(path, policy, record, body, footer)
        try:
            return await self._put_once(path, policy, record, body, footer)
        except NeverStored:
            # Devices that had answered lately were not asked whether they are there still; now they are.
            return await self._put_once(path, policy, record, body, footer)

    async def _put_once(self, path: Path, policy: int, record: PutRecord, body: bytes, footer: PutFooter) -> Written:
        upload = await self._upload(path, policy, record, footer.size)
        try:
            if body:
                await upload.write(body)
            return await upload.commit(footer)
        finally:
            await upload.abort()

    async def upload(self, path: Path, policy: int, record: PutRecord, size: int | None) -> CodedUpload | UnsizedUpload:
        """Begin a streamed object."""
        most = self._pack_below(policy)
        if most and (size is None or size <= most):
            coded = partial(self._upload, path, policy, record, size)
            return UnsizedUpload(most, coded, partial(self._put_small, path, policy, record))
        return await self._upload(path, policy, record, size)

    async def _upload(self, path: Path, policy: int, record: PutRecord, size: int | None) -> CodedUpload:
        places = self.places(path, policy)
        delivery = self._delivery(path, places, record.timestamp)
        stream = await self._transport.open_coded_put(places, record, size, _shares(delivery, places))
        return CodedUpload(path, record, places, stream, delivery, self._note)

    async def _put_small(self, path: Path, policy: int, record: PutRecord, body: bytes, footer: PutFooter) -> Written:
        """Store an object as copies. Raises Superseded and Unavailable."""
        places = self.places(path, policy)
        delivery = self._delivery_of_copies(path, places, record.timestamp)
        holders = places.coding.holders
        shares = [delivery.share(slot) for slot in range(holders)]
        end = await self._transport.put_small(places, record, body, footer, shares)
        self._note(places, end.refused)
        if end.past is not None and end.past > record.timestamp:
            raise Superseded(f"{path} is already at {end.past}", end.past)
        if end.verdict != "acknowledged":
            what = "it is not known whether it is stored" if end.verdict == "unknown" else "it is not stored"
            raise Unavailable(
                f"{path}: {what}: {end.prepared} of {holders} devices have a copy, and {places.coding.parity + 1} "
                f"places have to know of it ({_ailments(end.refused)})"
            )
        return Written(True, await _listed(delivery, path, row_of(path, record, footer), end.pending))

    def _delivery_of_copies(self, path: Path, places: CodedPlaces, timestamp: Timestamp) -> CodedRow:
        return self._rows.delivery(path, places.key, timestamp, places.coding.holders, places.key_of_copies)

    def _delivery(self, path: Path, places: CodedPlaces, timestamp: Timestamp) -> CodedRow:
        return self._rows.delivery(path, places.key, timestamp, places.coding.fragments, places.key_at)

    async def delete(self, path: Path, policy: int, timestamp: Timestamp) -> Written:
        """Delete an object; the result's `existed` tells whether there was one. Raises Superseded and Unavailable."""
        places = self.places(path, policy)
        delivery = self._delivery(path, places, timestamp)
        end = await self._transport.delete_coded(places, timestamp, str(path), _shares(delivery, places))
        self._note(places, end.refused)
        if end.newer is not None:
            raise Superseded(f"{path} is already at {end.newer}", end.newer)
        if end.verdict != "acknowledged":
            raise Unavailable(
                f"{path}: it is not known whether it is deleted: too few devices have done it "
                f"({_ailments(end.refused)})"
            )
        row = ObjectRow(path.obj or "", timestamp, deleted=True)
        return Written(end.existed, await _listed(delivery, path, row, end.pending))

    async def post(self, path: Path, policy: int, record: PostRecord) -> Written:
        """Replace metadata. Raises NotFound, Superseded and Unavailable."""
        download = await self.get(path, policy, 0, 0)
        await download.close()
        info = download.info
        if info.timestamp >= record.timestamp:
            raise Superseded(f"{path} is already at {info.timestamp}", info.timestamp)
        places = self.places(path, policy)
        if download.is_small:
            delivery = self._delivery_of_copies(path, places, record.timestamp)
            shares: Sequence[ContainerUpdate] = [delivery.share(slot) for slot in range(places.coding.holders)]
        else:
            delivery = self._delivery(path, places, record.timestamp)
            shares = _shares(delivery, places)
        of = None if download.is_small else info.timestamp
        end = await self._transport.post_coded(places, of, record, shares)
        self._note(places, end.refused)
        if end.verdict == "deleted":
            raise NotFound(f"{path} does not exist", end.newer)
        if end.newer is not None:
            raise Superseded(f"{path} is already at {end.newer}", end.newer)
        if end.verdict != "acknowledged":
            raise Unavailable(
                f"{path}: it is not known whether its metadata are changed: too few devices have kept them "
                f"({_ailments(end.refused)})"
            )
        row = ObjectRow.of(path.obj or "", end.info or _posted(info, record))
        return Written(True, await _listed(delivery, path, row, end.pending))

    async def head(self, path: Path, policy: int) -> ObjectInfo:
        """Return the description of the newest version. Raises NotFound and Unavailable."""
        download = await self.get(path, policy, 0, 0)
        await download.close()
        return download.info

    async def get(
        self, path: Path, policy: int, start: int = 0, stop: int | None = None, version: Timestamp | None = None
    ) -> CodedDownload:
        """Open bytes `[start, stop)` of the newest version. Raises NotFound, and Unavailable also when that is not
        `version`.
        """
        places = self.places(path, policy)
        try:
            has_small = self._pack_below(policy) > 0
            first, sound = self._first(places)
            stream = await self._transport.get_coded(places, first, start, stop, has_small, sound)
        except NotFound as error:
            raise NotFound(f"{path} does not exist", error.timestamp) from error
        except TooFewFragments as error:
            self._note(places, error.refused)
            raise _too_few(path, places, error) from error
        if version is not None and stream.info.timestamp != version:
            await stream.close()
            raise Unavailable(f"{path} has version {stream.info.timestamp}, not the one being read; try again")
        return CodedDownload(path, places, stream, start, stop, self._hedged)

    def _first(self, places: CodedPlaces) -> tuple[list[int], int]:
        """Return the places in the order in which they are asked: devices that failed lately or have missed writes
        last, those that may have copies first, then fragments with data before others, near ones first. And how many of
        them are none of those last ones.
        """
        order = list(range(len(places.at)))
        self._shuffle(order)
        behind = self._health.behind()
        last = [self._health.suppressed(device) or device.id in behind for device in places.at]

        def rank(place: int) -> tuple[bool, bool, bool, int]:
            device, coding = places.at[place], places.coding
            return last[place], place >= coding.holders, place >= coding.data, self._place.distance(device)

        return sorted(order, key=rank), len(last) - sum(last)

    def _note(self, places: CodedPlaces, refused: Sequence[Refused]) -> None:
        """Remember who is in trouble."""
        ailing = {device.id for device, error in refused if isinstance(error, NODE_TROUBLE)}
        for device in (*places.at, *places.spares):
            if device.id in ailing:
                self._health.failed(device)


def _posted(info: ObjectInfo, record: PostRecord) -> ObjectInfo:
    """Return an object as it is with metadata that are newer."""
    if record.content_type is not None:
        info = replace(info, content_type=record.content_type, content_type_timestamp=record.content_type_timestamp)
    return replace(info, metadata=record.metadata, meta_timestamp=record.timestamp)


def _ailments(refused: Sequence[Refused], otherwise: str = "nothing ails the others") -> str:
    return "; ".join(f"{device.name}: {error}" for device, error in refused) or otherwise


def _too_few(path: Path, places: CodedPlaces, error: TooFewFragments) -> Unavailable:
    coding = places.coding
    return Unavailable(
        f"{path}: too few devices have answered: {coding.data} of its {coding.fragments} fragments are needed to read "
        f"it ({_ailments(error.refused, 'the other devices have none')})"
    )


def _shares(delivery: CodedRow, places: CodedPlaces) -> Sequence[ContainerUpdate]:
    return [delivery.share(place) for place in range(places.coding.fragments)]


def _note_pending(delivery: CodedRow, pending: Sequence[PendingRow]) -> None:
    for place, device in pending:
        delivery.replied(place, device, WriteReply(pending=True))


async def _listed(delivery: CodedRow, path: Path, row: ObjectRow, pending: Sequence[PendingRow]) -> bool:
    """Bring a row to the container; return whether the container is missing.

    Raises Unavailable when nobody has the row, neither a replica of the container nor a device of the object.
    """
    _note_pending(delivery, pending)
    is_missing = await delivery.finish(row)
    if not is_missing and not pending and not delivery.is_listed:
        what = "deleted" if row.deleted else "stored"
        raise Unavailable(f"{path} is {what}, but no server of its container has listed that; try again")
    return is_missing


class NeverStored(Unavailable):
    """Too few devices have taken their fragment of an object: nothing of it is stored, nor will be."""


class CodedUpload:
    """A streamed object on its way to the devices of its places."""

    is_open = True
    """Devices are asked by its fragments themselves."""

    def __init__(
        self,
        path: Path,
        record: PutRecord,
        places: CodedPlaces,
        stream: CodedPutStream,
        delivery: CodedRow,
        note: Callable[[CodedPlaces, Sequence[Refused]], None],
    ) -> None:
        """`note` is told of devices that gave no good answer."""
        self._path = path
        self._record = record
        self._places = places
        self._stream = stream
        self._delivery = delivery
        self._note = note

    async def write(self, chunk: bytes | memoryview) -> None:
        """Code and send a chunk. Raises Unavailable when too few devices are left; then nothing is stored."""
        try:
            await self._stream.write(chunk)
        except CodedWriteEnded as ended:
            raise self._refused(ended.end) from ended
        except NODE_TROUBLE as error:
            raise Unavailable(f"{self._path}: {error}") from error

    async def commit(self, footer: PutFooter) -> Written:
        """Make the object durable on a quorum of devices, and its row. Raises Superseded and Unavailable."""
        try:
            end = await self._stream.commit(footer.etag)
        except NODE_TROUBLE as error:
            raise Unavailable(f"{self._path}: {error}") from error
        is_past = end.past is not None and end.past > self._record.timestamp
        if end.verdict != "acknowledged" or is_past:
            raise self._refused(end)
        self._note(self._places, end.refused)
        row = row_of(self._path, self._record, footer)
        pending = self._stream.pending()
        is_missing = await _listed(self._delivery, self._path, row, pending)
        # Devices that have answered meanwhile need not keep the row either.
        _note_pending(self._delivery, [late for late in self._stream.pending() if late not in pending])
        return Written(existed=True, container_missing=is_missing)

    def _refused(self, end: CodedEnd) -> SwiftletError:
        self._note(self._places, end.refused)
        if end.past is not None and end.past > self._record.timestamp:
            return Superseded(f"{self._path} is already at {end.past}", end.past)
        coding = self._places.coding
        if end.is_too_large:
            return SizeMismatch(
                f"{self._path} has too many cells of {coding.cell_bytes} bytes for one object; store it in segments"
            )
        what = "it is not known whether it is stored" if end.verdict == "unknown" else "it is not stored"
        refusal = NeverStored if end.verdict == "failed" else Unavailable
        return refusal(
            f"{self._path}: {what}: {end.prepared} of {coding.fragments} devices have taken their fragment, too few "
            f"({_ailments(end.refused)})"
        )

    async def abort(self) -> None:
        """Abort the upload; no device keeps anything of it. After `commit` it does nothing."""
        await self._stream.abort()


class UnsizedUpload:
    """A streamed object that may turn out to be a small one: held until it is known not to be."""

    is_open = True
    """Nobody is asked before."""

    def __init__(
        self,
        most: int,
        coded: Callable[[], Awaitable[CodedUpload]],
        small: Callable[[bytes, PutFooter], Awaitable[Written]],
    ) -> None:
        """One of more than `most` bytes is sent by what `coded` begins, another one by `small`."""
        self._most = most
        self._begin = coded
        self._small = small
        self._held = bytearray()
        self._coded: CodedUpload | None = None

    async def write(self, chunk: bytes | memoryview) -> None:
        """Hold a chunk, or code and send it. Raises Unavailable as `CodedUpload.write` does."""
        if self._coded is None:
            self._held += chunk
            if len(self._held) <= self._most:
                return
            chunk, self._held = bytes(self._held), bytearray()
            self._coded = await self._begin()
        await self._coded.write(chunk)

    async def commit(self, footer: PutFooter) -> Written:
        """Make the object durable, and its row. Raises Superseded and Unavailable."""
        if self._coded is None:
            return await self._small(bytes(self._held), footer)
        return await self._coded.commit(footer)

    async def abort(self) -> None:
        """Abort the upload; no device keeps anything of it. After `commit` it does nothing."""
        if self._coded is not None:
            await self._coded.abort()


class CodedDownload:
    """An object on its way to a client; native code replaces devices that fail in the middle."""

    def __init__(
        self,
        path: Path,
        places: CodedPlaces,
        stream: CodedGetStream,
        start: int,
        stop: int | None,
        hedged: Callable[[int], None],
    ) -> None:
        """`stream` begins at byte `start` and ends before `stop`, or at the end of the object. `hedged` is told how
        often it has asked others in the place of a device that was late, if it has.
        """
        self._hedged: Callable[[int], None] | None = hedged
        self._path = path
        self._places = places
        self._stream = stream
        self.info = stream.info
        self.is_small = stream.is_small
        """Whether the object lies as copies."""
        self.stop = self.info.size if stop is None else min(stop, self.info.size)
        self.start = min(start, self.stop)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield all bytes of the range in order. Raises Unavailable when the rest can't be put together."""
        try:
            async for chunk in self._stream.chunks():
                yield chunk
        except TooFewFragments as error:
            raise _too_few(self._path, self._places, error) from error
        except NODE_TROUBLE as error:
            raise Unavailable(f"{self._path}: {error}") from error

    async def close(self) -> None:
        """Stop; a second call does nothing."""
        hedged, self._hedged = self._hedged, None
        if hedged is not None and (hedges := self._stream.hedges):
            hedged(hedges)
        await self._stream.close()
