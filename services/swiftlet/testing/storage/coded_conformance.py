"""A conformance suite for every `CodedTransport`, with 4+2 on eight devices that may be away.

A test module subclasses `CodedTransportConformance` and says how to reach such devices; pytest runs the rest.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass

import pytest

from swiftlet.boundaries.coded import CodedEnd, CodedPlaces, CodedTransport, CodedWriteEnded, TooFewFragments
from swiftlet.boundaries.objects import ContainerUpdate
from swiftlet.errors import NodeError, NotFound
from swiftlet.model import ObjectInfo, ObjectKey, PostRecord, PutRecord
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Coding
from swiftlet.testing.store.conformance import NAME, at, footer_of, some_bytes
from swiftlet.timestamp import Timestamp

DEVICES = 8
"""Six places of an object, and two devices that stand in for others."""
STRIPES = 3
"""Stripes of a large object, the last one not whole."""
NO_ROW = ContainerUpdate("account", "container", ())
ROW = ContainerUpdate("account", "container", (0, 2))


@dataclass(frozen=True, slots=True)
class CodedPeer:
    """The transport under test, and its devices."""

    transport: CodedTransport
    ring: Ring
    policy: int
    coding: Coding
    away: Callable[..., AbstractContextManager[None]]
    """Lets devices, by their ids, be away."""

    def places(self, number: int = 0) -> CodedPlaces:
        """Return where one of many objects is."""
        digest = number.to_bytes(16, "big")
        key = ObjectKey(self.policy, self.ring.partition_of(digest), digest)
        return CodedPlaces.in_ring(key, self.coding, self.ring, self.coding.parity)

    @property
    def large(self) -> bytes:
        """A body of some stripes."""
        return some_bytes((STRIPES - 1) * self.coding.data * self.coding.cell_bytes + 1234)

    async def put(self, body: bytes, moment: float, number: int = 0, rows: Sequence[ContainerUpdate] = ()) -> CodedEnd:
        """Store an object as fragments."""
        stream = await self.transport.open_coded_put(self.places(number), record(moment), len(body), rows)
        try:
            for start in range(0, len(body), 3000):
                await stream.write(body[start : start + 3000])
            return await stream.commit(footer_of(body).etag)
        except CodedWriteEnded as ended:
            # When too few devices are there a write may end with its first byte.
            return ended.end
        finally:
            await stream.abort()

    async def put_small(self, body: bytes, moment: float, rows: Sequence[ContainerUpdate] = ()) -> CodedEnd:
        """Store an object as copies."""
        return await self.transport.put_small(self.places(), record(moment), body, footer_of(body), rows)

    async def read(
        self, start: int = 0, stop: int | None = None, number: int = 0, *, has_small: bool = False
    ) -> tuple[bytes, ObjectInfo, bool]:
        """Return bytes of an object, its description, and whether it lies as copies."""
        places = self.places(number)
        stream = await self.transport.get_coded(places, range(len(places.at)), start, stop, has_small)
        try:
            return b"".join([chunk async for chunk in stream.chunks()]), stream.info, stream.is_small
        finally:
            await stream.close()

    async def delete(self, moment: float) -> tuple[str, bool, Timestamp | None]:
        """Delete an object; return the verdict, whether there was one, and what is newer."""
        end = await self.transport.delete_coded(self.places(), at(moment), NAME, ())
        return end.verdict, end.existed, end.newer


def record(moment: float) -> PutRecord:
    """Return the record of a write."""
    return PutRecord(NAME, at(moment), "text/plain", {"X-Object-Meta-Color": "red"}, {"X-Object-Sysmeta-A": "b"})


def posted(moment: float, color: str) -> PostRecord:
    """Return the metadata of a POST."""
    return PostRecord(at(moment), {"X-Object-Meta-Color": color})


class CodedTransportConformance(ABC):
    @abstractmethod
    def connected(self) -> AbstractAsyncContextManager[CodedPeer]:
        """Return a transport to `DEVICES` empty devices."""

    @pytest.fixture
    async def peer(self) -> AsyncIterator[CodedPeer]:
        async with self.connected() as peer:
            yield peer

    async def test_what_was_never_written_is_not_there(self, peer: CodedPeer) -> None:
        for has_small in (False, True):
            with pytest.raises(NotFound) as caught:
                await peer.read(has_small=has_small)
            assert caught.value.timestamp is None

    async def test_a_large_object_is_read_whole_and_in_ranges(self, peer: CodedPeer) -> None:
        body = peer.large
        end = await peer.put(body, 1.0)
        assert (end.verdict, end.past, end.prepared >= peer.coding.data + 1) == ("acknowledged", None, True)
        stripe = peer.coding.data * peer.coding.cell_bytes
        for start, stop in ((0, None), (0, 1), (stripe - 1, stripe + 1), (7, 7), (len(body) - 1, len(body) + 99)):
            found, info, is_small = await peer.read(start, stop)
            assert found == body[start:stop]
            assert not is_small
        footer = footer_of(body)
        assert (info.size, info.etag, info.timestamp, info.xxh3) == (len(body), footer.etag, at(1.0), None)
        assert (info.name, info.content_type) == (NAME, "text/plain")
        assert (dict(info.metadata), dict(info.sysmeta)) == (record(1.0).metadata, record(1.0).sysmeta)

    async def test_an_empty_object_is_one(self, peer: CodedPeer) -> None:
        assert (await peer.put(b"", 1.0)).verdict == "acknowledged"
        found, info, _ = await peer.read()
        assert (found, info.size) == (b"", 0)

    async def test_a_small_object_is_read_as_copies(self, peer: CodedPeer) -> None:
        body = some_bytes(700)
        end = await peer.put_small(body, 1.0)
        assert (end.verdict, end.past, end.prepared > peer.coding.holders // 2) == ("acknowledged", None, True)
        found, info, is_small = await peer.read(has_small=True)
        assert (found, info.size, info.etag, is_small) == (body, 700, footer_of(body).etag, True)
        assert (await peer.read(100, 200, has_small=True))[0] == body[100:200]

    async def test_the_newest_form_counts(self, peer: CodedPeer) -> None:
        small, large = some_bytes(700), peer.large
        await peer.put(large, 1.0)
        assert (await peer.put_small(small, 2.0)).verdict == "acknowledged"
        assert (await peer.read(has_small=True))[::2] == (small, True)
        assert (await peer.put(large, 3.0)).verdict == "acknowledged"
        assert (await peer.read(has_small=True))[::2] == (large, False)

    async def test_as_many_devices_as_there_is_parity_may_be_away(self, peer: CodedPeer) -> None:
        body, ids = peer.large, [device.id for device in peer.places().at]
        for number, pair in enumerate(itertools.combinations(ids, peer.coding.parity)):
            with peer.away(*pair):
                end = await peer.put(body, 1.0 + number)
            assert end.verdict == "acknowledged", pair
            told = {device.id: error for device, error in end.refused}
            assert all(isinstance(told[one], NodeError) for one in pair), told
            with peer.away(*pair):
                assert (await peer.read())[0] == body

    async def test_with_one_more_away_nothing_is_written_and_nothing_is_read(self, peer: CodedPeer) -> None:
        await peer.put(peer.large, 1.0)
        ids = [device.id for device in peer.places().at[: peer.coding.parity + 1]]
        with peer.away(*ids):
            with pytest.raises(TooFewFragments) as caught:
                await peer.read()
            assert {device.id for device, _ in caught.value.refused} >= set(ids)
        spares = [device.id for device in peer.places().spares]
        with peer.away(*ids[:2], *spares):
            assert (await peer.put(b"later", 2.0)).verdict != "acknowledged"

    async def test_small_objects_survive_as_many_lost_devices(self, peer: CodedPeer) -> None:
        body, holders = some_bytes(700), [device.id for device in peer.places().at[: peer.coding.holders]]
        # One that was late may not have its copy yet.
        moment = 1.0
        while (end := await peer.put_small(body, moment)).prepared < peer.coding.holders:
            assert end.verdict == "acknowledged"
            moment += 1.0
        for pair in itertools.combinations(holders, peer.coding.parity):
            with peer.away(*pair):
                assert (await peer.read(has_small=True))[0] == body

    async def test_what_is_older_than_what_is_there_changes_nothing(self, peer: CodedPeer) -> None:
        await peer.put(peer.large, 2.0)
        assert (await peer.put(b"older", 1.0)).past == at(2.0)
        past = (await peer.put_small(b"older", 1.0)).past
        # What ends older copies where the newer object has fragments may be of the time just before it.
        assert past is not None
        assert at(1.0) < past <= at(2.0)
        assert await peer.delete(1.0) == ("superseded", True, at(2.0))
        assert (await peer.read())[0] == peer.large

    async def test_nothing_is_left_of_what_was_aborted(self, peer: CodedPeer) -> None:
        stream = await peer.transport.open_coded_put(peer.places(), record(1.0), None, ())
        await stream.write(peer.large)
        await stream.abort()
        await stream.abort()
        with pytest.raises(NotFound):
            await peer.read()

    async def test_what_was_deleted_is_gone(self, peer: CodedPeer) -> None:
        await peer.put(peer.large, 1.0)
        assert await peer.delete(2.0) == ("acknowledged", True, None)
        with pytest.raises(NotFound) as caught:
            await peer.read()
        assert caught.value.timestamp == at(2.0)
        assert (await peer.delete(3.0))[:2] == ("acknowledged", False)

    async def test_a_small_object_is_deleted_as_a_large_one(self, peer: CodedPeer) -> None:
        await peer.put_small(some_bytes(700), 1.0)
        assert await peer.delete(2.0) == ("acknowledged", True, None)
        with pytest.raises(NotFound) as caught:
            await peer.read(has_small=True)
        assert caught.value.timestamp == at(2.0)

    async def test_metadata_replace_those_of_a_large_object(self, peer: CodedPeer) -> None:
        await peer.put(peer.large, 1.0)
        end = await peer.transport.post_coded(peer.places(), at(1.0), posted(2.0, "blue"), ())
        assert (end.verdict, end.newer) == ("acknowledged", None)
        found, info, _ = await peer.read()
        assert (found, dict(info.metadata), info.meta_timestamp) == (
            peer.large,
            {"X-Object-Meta-Color": "blue"},
            at(2.0),
        )
        assert dict(info.sysmeta) == record(1.0).sysmeta
        late = await peer.transport.post_coded(peer.places(), at(1.0), posted(1.5, "green"), ())
        assert (late.verdict, late.newer) == ("superseded", at(2.0))
        assert dict((await peer.read())[1].metadata) == {"X-Object-Meta-Color": "blue"}

    async def test_metadata_replace_those_of_a_small_object(self, peer: CodedPeer) -> None:
        body = some_bytes(700)
        await peer.put_small(body, 1.0)
        end = await peer.transport.post_coded(peer.places(), None, posted(2.0, "blue"), ())
        assert end.verdict == "acknowledged"
        found, info, _ = await peer.read(has_small=True)
        assert (found, dict(info.metadata)) == (body, {"X-Object-Meta-Color": "blue"})

    async def test_a_new_version_has_its_own_metadata(self, peer: CodedPeer) -> None:
        await peer.put(peer.large, 1.0)
        await peer.transport.post_coded(peer.places(), at(1.0), posted(2.0, "blue"), ())
        await peer.put(b"new", 3.0)
        assert dict((await peer.read())[1].metadata) == record(3.0).metadata

    async def test_metadata_of_what_was_deleted_are_refused(self, peer: CodedPeer) -> None:
        await peer.put(peer.large, 1.0)
        await peer.delete(2.0)
        end = await peer.transport.post_coded(peer.places(), at(1.0), posted(3.0, "blue"), ())
        assert (end.verdict, end.newer) == ("deleted", at(2.0))

    async def test_rows_are_pending_where_they_were_asked_for(self, peer: CodedPeer) -> None:
        rows = [ROW if place in (1, 4) else NO_ROW for place in range(peer.coding.fragments)]
        places = peer.places()
        stream = await peer.transport.open_coded_put(places, record(1.0), 9, rows)
        await stream.write(b"some text")
        assert (await stream.commit(footer_of(b"some text").etag)).verdict == "acknowledged"
        # Another device may have stood in for a slow one, with the row of its place.
        assert {place for place, _ in stream.pending()} <= {1, 4}
        assert stream.pending(), "one of them is of the quorum"
        await stream.abort()
        small = await peer.put_small(b"small", 2.0, [ROW, NO_ROW, NO_ROW])
        assert {place for place, _ in small.pending} <= {0}
        deletion = await peer.transport.delete_coded(places, at(3.0), NAME, rows)
        assert {place for place, _ in deletion.pending} <= {1, 4}
        assert deletion.pending

    async def test_objects_of_one_partition_do_not_know_each_other(self, peer: CodedPeer) -> None:
        await peer.put(peer.large, 1.0)
        await peer.put(b"other", 1.0, number=1)
        assert (await peer.read())[0] == peer.large
        assert (await peer.read(number=1))[0] == b"other"
