"""`CodedTransport` in memory: devices that keep fragments and copies in dictionaries, and may be away.

A fragment is the whole object, of which a reader needs as many as the coding says. Nothing is under way: a write, a
deletion and a POST are one step at the devices that are there. How such steps overlap is decided by native code, whose
own simulation tries it (`native/crates/fragments`).

Fault model: a device is away, and answers nothing then. What it has is there when it returns.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from swiftlet.boundaries.coded import (
    CodedDeletion,
    CodedEnd,
    CodedPlaces,
    CodedPosted,
    PendingRow,
    Refused,
    TooFewFragments,
)
from swiftlet.boundaries.objects import ContainerUpdate
from swiftlet.errors import NodeError, NotFound
from swiftlet.model import ObjectInfo, ObjectKey, PostRecord, PutFooter, PutRecord
from swiftlet.ring.model import Coding, Device
from swiftlet.store.merge import info_of, merge_post
from swiftlet.timestamp import ZERO, Timestamp


@dataclass(frozen=True, slots=True)
class _Version:
    """A version of an object, of which a device has a fragment or a copy."""

    record: PutRecord
    footer: PutFooter
    body: bytes
    is_small: bool


@dataclass(slots=True)
class _Held:
    """What a device has under one key."""

    version: _Version | None = None
    dead_until: Timestamp = ZERO
    """Versions up to this time are dead."""
    deleted: Timestamp = ZERO
    """The deletion that it knows."""
    post: PostRecord | None = None

    @property
    def newest(self) -> Timestamp:
        """The version or the deletion that counts."""
        return max(self.dead_until, self.version.record.timestamp if self.version else ZERO)

    def put(self, version: _Version) -> None:
        """Keep a version, unless something newer is here."""
        if version.record.timestamp > self.newest:
            self.version = version

    def end(self, until: Timestamp) -> None:
        """Let versions up to this time be dead."""
        self.dead_until = max(self.dead_until, until)
        if self.version is not None and self.version.record.timestamp <= until:
            self.version = None

    def delete(self, timestamp: Timestamp) -> None:
        """End what is older, and remember when it was deleted unless something newer is there."""
        self.end(timestamp)
        if self.version is None:
            self.deleted = max(self.deleted, timestamp)


@dataclass(slots=True)
class _Asked:
    """The devices that are asked about one object, and those that are away."""

    there: list[tuple[int, Device]] = field(default_factory=list)
    """Place numbers, with the device that answers for each."""
    refused: list[Refused] = field(default_factory=list)


class MemoryCoded:
    """Behaves as `swiftlet.boundaries.coded.CodedTransport` requires."""

    def __init__(self) -> None:
        """Know no object; all devices are there."""
        self._held: dict[int, dict[ObjectKey, _Held]] = {}
        self._away: frozenset[int] = frozenset()

    @contextmanager
    def away(self, *devices: int) -> Iterator[None]:
        """Let devices, by their ids, be away."""
        before, self._away = self._away, frozenset(devices)
        try:
            yield
        finally:
            self._away = before

    def _at(self, device: Device, key: ObjectKey) -> _Held:
        return self._held.setdefault(device.id, {}).setdefault(key, _Held())

    def _asked(self, places: CodedPlaces, count: int, *, with_spares: bool = True) -> _Asked:
        """Ask the devices of the first places; spares stand in for those that are away."""
        asked: _Asked = _Asked()
        spares = [device for device in places.spares if with_spares and device.id not in self._away]
        for place, device in enumerate(places.at[:count]):
            if device.id not in self._away:
                asked.there.append((place, device))
                continue
            asked.refused.append((device, NodeError(f"{device.name} is away")))
            if spares:
                asked.there.append((place, spares.pop(0)))
        return asked

    # -- writing ---------------------------------------------------------------------------------------------

    async def open_coded_put(
        self, places: CodedPlaces, record: PutRecord, size: int | None, rows: Sequence[ContainerUpdate]
    ) -> MemoryCodedPut:
        """Return an upload of which nothing is stored before its commit, nor any device asked."""
        return MemoryCodedPut(self, places, record, rows)

    def put_fragments(
        self, places: CodedPlaces, version: _Version, rows: Sequence[ContainerUpdate]
    ) -> tuple[CodedEnd, list[PendingRow]]:
        """Store an object as fragments, if a quorum of devices is there."""
        asked = self._asked(places, places.coding.fragments)
        timestamp = version.record.timestamp
        held = {place: self._at(device, places.key_at(place)) for place, device in asked.there}
        newer = max((one.newest for one in held.values()), default=ZERO)
        copies = [self._at(device, places.key_of_copies()) for _, device in asked.there]
        newer = max([newer, *(one.newest for one in copies)])
        if newer >= timestamp:
            return CodedEnd("failed", newer, 0, refused=asked.refused), []
        if len(held) < quorum_of(places.coding):
            return CodedEnd("failed", None, len(held), refused=asked.refused), []
        for one in held.values():
            one.put(version)
        for copy in copies:
            copy.end(_before(timestamp))
        return CodedEnd("acknowledged", None, len(held), refused=asked.refused), _pending(asked, rows)

    async def put_small(
        self, places: CodedPlaces, record: PutRecord, body: bytes, footer: PutFooter, rows: Sequence[ContainerUpdate]
    ) -> CodedEnd:
        """Store a small object as copies at the first places."""
        holders = places.coding.holders
        asked, all_places = (
            self._asked(places, holders),
            self._asked(places, places.coding.fragments, with_spares=False),
        )
        key, version = places.key_of_copies(), _Version(record, footer, body, is_small=True)
        held = [self._at(device, key) for _, device in asked.there]
        fragments = [self._at(device, places.key_at(place)) for place, device in all_places.there]
        newer = max((one.newest for one in [*held, *fragments]), default=ZERO)
        if newer >= record.timestamp:
            return CodedEnd("failed", newer, 0, refused=asked.refused)
        if len(held) <= holders // 2 or len(fragments) <= places.coding.parity:
            return CodedEnd("unknown", None, len(held), refused=asked.refused)
        for one in held:
            one.put(version)
        for fragment in fragments:
            fragment.end(_before(record.timestamp))
        return CodedEnd("acknowledged", None, len(held), refused=asked.refused, pending=_pending(asked, rows))

    async def delete_coded(
        self, places: CodedPlaces, timestamp: Timestamp, name: str, rows: Sequence[ContainerUpdate]
    ) -> CodedDeletion:
        """Put a tombstone at each place."""
        asked = self._asked(places, places.coding.fragments)
        held = [
            one
            for place, device in asked.there
            for one in (self._at(device, places.key_at(place)), self._at(device, places.key_of_copies()))
        ]
        newest = max((one.version.record.timestamp for one in held if one.version is not None), default=None)
        if newest is not None and newest > timestamp:
            return CodedDeletion("superseded", True, newest, asked.refused)
        for one in held:
            one.delete(timestamp)
        if len(asked.there) < quorum_of(places.coding):
            return CodedDeletion("unknown", newest is not None, None, asked.refused)
        return CodedDeletion("acknowledged", newest is not None, None, asked.refused, _pending(asked, rows))

    async def post_coded(
        self, places: CodedPlaces, of: Timestamp | None, record: PostRecord, rows: Sequence[ContainerUpdate]
    ) -> CodedPosted:
        """Put metadata at each place, or on the copies of a small object."""
        coding = places.coding
        asked = self._asked(places, coding.holders if of is None else coding.fragments, with_spares=of is not None)
        least = coding.holders // 2 + 1 if of is None else quorum_of(coding)
        held = [
            self._at(device, places.key_of_copies() if of is None else places.key_at(place))
            for place, device in asked.there
        ]
        deleted = max((one.deleted for one in held), default=ZERO)
        if deleted > (of or ZERO) and all(one.version is None for one in held):
            return CodedPosted("deleted", deleted, refused=asked.refused)
        if of is None:
            held = [one for one in held if one.version is not None]
        info, superseded = None, None
        for one in held:
            data = one.version.record.timestamp if one.version is not None else of or ZERO
            merged = merge_post(data, one.post, record)
            superseded = merged.superseded_by or superseded
            one.post = merged.store or one.post
            if one.version is not None:
                info = _info(one.version, one.post)
        if superseded is not None:
            return CodedPosted("superseded", superseded, refused=asked.refused)
        if len(held) < least:
            return CodedPosted("unknown", refused=asked.refused)
        return CodedPosted("acknowledged", None, info, asked.refused, _pending(asked, rows))

    # -- reading ---------------------------------------------------------------------------------------------

    async def get_coded(
        self,
        places: CodedPlaces,
        first: Sequence[int],
        start: int,
        stop: int | None,
        has_small: bool = False,
        sound: int = 0,
    ) -> MemoryCodedGet:
        """Read bytes `[start, stop)` of the newest version."""
        coding = places.coding
        asked = self._asked(places, coding.fragments, with_spares=False)
        spares = [device for device in places.spares if device.id not in self._away]
        everyone = [device for _, device in asked.there] + spares
        copies = [self._at(device, places.key_of_copies()) for device in everyone]
        fragments = {
            place: [
                self._at(device, places.key_at(place)) for device in (places.at[place], *spares) if device in everyone
            ]
            for place in range(coding.fragments)
        }
        held = [*copies, *(one for each in fragments.values() for one in each)]
        newest = max((one.newest for one in held), default=ZERO)
        having = [one.version for one in held if one.version and one.version.record.timestamp == newest]
        if not having:
            answered = sum(place < coding.holders for place, _ in asked.there) if has_small else len(asked.there)
            if answered <= coding.parity:
                raise TooFewFragments(asked.refused)
            deleted = max((one.deleted for one in held), default=ZERO)
            raise NotFound("there is no such object", None if deleted == ZERO else deleted)
        version = having[0]
        places_with = sum(any(one.version is version for one in each) for each in fragments.values())
        if not version.is_small and places_with < coding.data:
            raise TooFewFragments(asked.refused)
        posts = [one.post for one in held if one.post is not None and one.post.timestamp > newest]
        post = max(posts, key=lambda one: one.timestamp, default=None)
        return MemoryCodedGet(version, _info(version, post), start, stop)


class MemoryCodedPut:
    """Behaves as `swiftlet.boundaries.coded.CodedPutStream` requires."""

    def __init__(
        self, coded: MemoryCoded, places: CodedPlaces, record: PutRecord, rows: Sequence[ContainerUpdate]
    ) -> None:
        """Hold no byte yet."""
        self._coded = coded
        self._places = places
        self._record = record
        self._rows = rows
        self._body = bytearray()
        self._pending: Sequence[PendingRow] = ()
        self._is_aborted = False

    async def write(self, chunk: bytes | memoryview) -> None:
        """Add to the body that the commit stores."""
        self._body += chunk

    async def commit(self, etag: str) -> CodedEnd:
        """Store what was written, unless it was aborted."""
        if self._is_aborted:
            return CodedEnd("unknown", None, 0)
        body = bytes(self._body)
        version = _Version(self._record, PutFooter(len(body), etag, 0), body, is_small=False)
        end, self._pending = self._coded.put_fragments(self._places, version, self._rows)
        return end

    def pending(self) -> Sequence[PendingRow]:
        """Return the rows that devices have pending."""
        return self._pending

    async def abort(self) -> None:
        """Have a later commit store nothing and say that the outcome is unknown."""
        self._is_aborted = True


class MemoryCodedGet:
    """Behaves as `swiftlet.boundaries.coded.CodedGetStream` requires."""

    def __init__(self, version: _Version, info: ObjectInfo, start: int, stop: int | None) -> None:
        """Give this range of a version."""
        self._version = version
        self._info = info
        self._range = slice(start, stop)

    @property
    def info(self) -> ObjectInfo:
        """Return the description of the object."""
        return self._info

    @property
    def is_small(self) -> bool:
        """Whether the object lies as copies."""
        return self._version.is_small

    @property
    def hedges(self) -> int:
        """Return 0: nobody is late."""
        return 0

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the requested bytes, if there are any."""
        if found := self._version.body[self._range]:
            yield found

    async def close(self) -> None:
        """Do nothing: nothing is under way."""


def quorum_of(coding: Coding) -> int:
    """Return how many devices a write needs."""
    return max(coding.data + 1, coding.fragments // 2 + 1)


def _before(timestamp: Timestamp) -> Timestamp:
    return Timestamp(timestamp.value - 1)


def _info(version: _Version, post: PostRecord | None) -> ObjectInfo:
    post = post if post is not None and post.timestamp > version.record.timestamp else None
    return replace(info_of(version.record, version.footer, post), xxh3=None)


def _pending(asked: _Asked, rows: Sequence[ContainerUpdate]) -> list[PendingRow]:
    return [(place, device) for place, device in asked.there if place < len(rows) and rows[place].replicas]
