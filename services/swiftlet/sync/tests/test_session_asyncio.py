"""The machines driven by asyncio over the object transport and real stores' interface, objects with bytes and all."""

from __future__ import annotations

import asyncio
import random

import pytest
from swiftlet_native import xxh3_64

from swiftlet.errors import NotFound, Superseded, SwiftletError
from swiftlet.model import Entry, ObjectKey, PutFooter, PutRecord
from swiftlet.placement.tests.cluster import make_ring
from swiftlet.ring.model import Device
from swiftlet.store import sethash
from swiftlet.sync.moving.copies import bring
from swiftlet.sync.session.compare import Push
from swiftlet.sync.session.effects import (
    Ask,
    Drop,
    Effect,
    Move,
    MoveOutcome,
    ReadEntries,
    ReadRoots,
    ReadSuffixes,
    Session,
    Terms,
)
from swiftlet.sync.session.entries import slice_page
from swiftlet.sync.session.handoff import handoff_session
from swiftlet.sync.session.messages import Reply, decode_reply, decode_request, encode
from swiftlet.sync.session.neighbour import neighbour_session
from swiftlet.sync.session.queue import ordered, plan, session_plans
from swiftlet.sync.session.responder import answer
from swiftlet.sync.session.topology import BATCHED, LIGHTSYNC, Mode
from swiftlet.testing.storage.memory_objects import MemoryObjectTransport
from swiftlet.testing.store.faults import FaultyStore
from swiftlet.testing.store.memory import MemoryStore
from swiftlet.timestamp import Timestamp

NOW_S = 1_000_000.0
RING = make_ring(5)
DEVICES = {device.id: device for device in RING.devices if device is not None}


class Driver:
    """What a replicator does with the machines."""

    def __init__(self, transport: MemoryObjectTransport) -> None:
        self.transport = transport

    async def round(self, device: Device, terms: Terms) -> None:
        held = await self.transport.partitions(device, 0)
        work = plan(RING, device.id, held, (), terms.mode)
        sessions = [
            neighbour_session(terms, planned.peer, planned.partitions)
            for planned in session_plans(ordered(work.items, (), random.Random(1)), terms.mode, 8)
        ]
        sessions += [handoff_session(terms, handoff.partition, handoff.primaries) for handoff in work.handoffs]
        await asyncio.gather(*(self.drive(device, session) for session in sessions))

    async def drive(self, device: Device, session: Session) -> None:
        effect = session.resume(None, NOW_S)
        while effect is not None:
            try:
                observation = await self._do(device, effect)
            except SwiftletError as error:
                effect = session.fail(error, NOW_S)
            else:
                effect = session.resume(observation, NOW_S)
        assert session.error is None

    async def _do(self, device: Device, effect: Effect) -> object:
        if isinstance(effect, Ask):
            return await self._answer(DEVICES[effect.peer], encode(effect.request))
        if isinstance(effect, Move):
            peer = DEVICES[effect.peer]
            source, target = (peer, device) if effect.pull else (device, peer)
            return await asyncio.gather(*(self._bring(source, target, effect.partition, p) for p in effect.objects))
        if isinstance(effect, Drop):
            keys = [(ObjectKey(0, effect.partition, entry.digest), entry) for entry in effect.entries]
            return sum([await self.transport.remove(device, key, entry) for key, entry in keys])
        return await self._look(device, effect)

    async def _answer(self, peer: Device, data: bytes) -> Reply:
        steps = answer(decode_request(data), RING.version, lambda p: peer in RING.primaries(p))
        effect = next(steps)
        while True:
            try:
                effect = steps.send(await self._look(peer, effect))
            except StopIteration as stop:
                return decode_reply(encode(stop.value))

    async def _look(self, device: Device, effect: Effect) -> object:
        if isinstance(effect, ReadRoots):
            found = [await self.transport.suffix_hashes(device, 0, p) for p in effect.partitions]
            return [sethash.root(hashes) for hashes in found]
        if isinstance(effect, ReadSuffixes):
            return await self.transport.suffix_hashes(device, 0, effect.partition)
        if isinstance(effect, ReadEntries):
            entries: list[Entry] = []
            for suffix in effect.suffixes:
                entries += await self.transport.entries(device, 0, effect.partition, suffix)
            return slice_page(entries, effect.after, effect.limit)
        return None

    async def _bring(self, source: Device, target: Device, partition: int, push: Push) -> MoveOutcome:
        try:
            await bring(self.transport, source, target, ObjectKey(0, partition, push.entry.digest), push)
        except (Superseded, NotFound):
            return MoveOutcome.OVERTAKEN
        return MoveOutcome.MOVED


def put(store: FaultyStore, digest: bytes, body: bytes, seconds: float) -> None:
    writer = store.create(ObjectKey(0, RING.partition_of(digest), digest))
    writer.write(body)
    writer.commit(
        PutRecord(f"/a/c/{digest.hex()}", Timestamp.at(seconds), "text/plain"),
        PutFooter(len(body), "", xxh3_64(body)),
    )


@pytest.mark.parametrize(("mode", "rounds"), [(BATCHED, 1), (LIGHTSYNC, 2)], ids=["batched", "lightsync"])
async def test_replicas_become_equal_and_handoffs_empty(mode: Mode, rounds: int) -> None:
    stores: dict[str, FaultyStore] = {device.address: MemoryStore() for device in DEVICES.values()}
    driver = Driver(MemoryObjectTransport(stores, patience_s=0.0))
    chance = random.Random(7)
    newest: dict[bytes, bytes] = {}
    for number in range(60):
        digest = chance.randbytes(16)
        body = f"{number} new".encode()
        put(stores[chance.choice(list(stores))], digest, f"{number} old".encode(), 1.0)
        put(stores[chance.choice(list(stores))], digest, body, 2.0)
        newest[digest] = body
    for _ in range(rounds + 1):
        await asyncio.gather(*(driver.round(device, Terms(mode=mode)) for device in DEVICES.values()))
    for digest, body in newest.items():
        partition = RING.partition_of(digest)
        primaries = RING.primaries(partition)
        for device in DEVICES.values():
            if device in primaries:
                with stores[device.address].open(ObjectKey(0, partition, digest)) as reader:
                    assert reader.read(0, 100) == body
            else:
                assert partition not in stores[device.address].partitions(0)
