"""The session machines of any mode, driven over signed HTTP: one round of one device.

A driver of its own, so that all modes are measured by the same code. A peer whose connections are refused ten times is
taken for failed, as the replicator does it, and what was to be compared with it goes to the next neighbour.

Fault model: a session that ends early leaves the partitions that it did not report; they are compared in another one.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from bench.sync.cluster import KEY, Cluster, Node
from swiftlet.errors import NodeError, NotFound, Superseded, SwiftletError
from swiftlet.model import Entry, ObjectKey
from swiftlet.ring.model import Device
from swiftlet.sync.compare import Push
from swiftlet.sync.copies import bring
from swiftlet.sync.session.effects import (
    Ask,
    Effect,
    Fate,
    Move,
    Proved,
    ReadEntries,
    ReadRoots,
    ReadSuffixes,
    Session,
    Settled,
    Terms,
    expect,
)
from swiftlet.sync.session.entries import slice_page
from swiftlet.sync.session.messages import Compare, Roots, decode_reply, encode
from swiftlet.sync.session.neighbour import neighbour_session
from swiftlet.sync.session.queue import Errand, Item, errands, ordered, plan
from swiftlet.sync.session.topology import First, Mode
from swiftlet.transport.http_client import HttpSettings
from swiftlet.transport.http_objects import HttpObjectTransport

ERROR_LIMIT = 10
_LANES = 4
_NOT_A_HASH = b"\xff" * 16
_SESSION = 256
"""Partitions of one session where each has messages of its own."""
_BATCH = 4096
_PATIENT = HttpSettings(connect_timeout_s=20.0, answer_timeout_s=120.0)
"""A busy machine is no failed node: one that is down refuses connections at once."""


@dataclass
class Done:
    """What a round did."""

    moved: int = 0
    proved: int = 0
    settled: int = 0
    left: int = 0
    """Comparisons that did not come to an end."""
    failed: set[int] = field(default_factory=set)
    """Peers that are taken for failed."""


class Round:
    """One round of one node."""

    def __init__(self, cluster: Cluster, node: Node, mode: Mode, seed: int = 1) -> None:
        """`seed` is the order's."""
        self._cluster = cluster
        self._node = node
        self._terms = Terms(0, cluster.ring.version, mode)
        self._random = Random(seed)
        self._transport = HttpObjectTransport(_PATIENT, key=KEY)
        self._roots: dict[int, bytes] = {}
        self._errors: dict[int, int] = {}
        self._open: set[Item] = set()
        self.done = Done()

    async def run(self) -> Done:
        """All of it."""
        try:
            held = await self._transport.partitions(self._node.device, 0)
            ring, mode = self._cluster.ring, self._terms.mode
            items = plan(ring, self._node.device.id, held, (), mode).items
            self._open = set(items)
            if mode.first is not First.SUFFIXES:
                await self._read_roots(sorted({item.partition for item in items}))
            queue = deque(self._cut(items))
            tried: set[Item] = set(items)
            while queue:
                await asyncio.gather(*(self._lane(queue) for _ in range(_LANES)))
                queue.extend(self._again(held, tried))
            self.done.left = len(self._open)
        finally:
            await self._transport.close()
        return self.done

    def _cut(self, items: Iterable[Item]) -> list[Errand]:
        mode = self._terms.mode
        size = _BATCH if mode.first is First.BATCH else _SESSION
        return list(errands(ordered(items, (), self._random), mode, size))

    def _again(self, held: list[int], tried: set[Item]) -> list[Errand]:
        """What is left of sessions that ended early; with the next neighbour where the first one has failed."""
        failed = self.done.failed
        left = {item for item in self._open if item.peer not in failed}
        if failed:
            self._open = {item for item in self._open if item.peer not in failed}
            new = plan(self._cluster.ring, self._node.device.id, held, failed, self._terms.mode).items
            fresh = [item for item in new if item not in tried]
            tried.update(fresh)
            self._open.update(fresh)
            left.update(fresh)
        return self._cut(sorted(left, key=lambda item: (item.partition, item.peer)))

    async def _lane(self, queue: deque[Errand]) -> None:
        while queue:
            errand = queue.popleft()
            if errand.peer not in self.done.failed:
                await self._drive(neighbour_session(self._terms, errand.peer, errand.partitions))

    async def _drive(self, session: Session) -> None:
        effect = session.resume(None, time.time())
        while effect is not None:
            try:
                observation = await self._do(effect)
            except SwiftletError as error:
                effect = session.fail(error, time.time())
            else:
                effect = session.resume(observation, time.time())

    async def _do(self, effect: Effect) -> object:
        if isinstance(effect, Ask):
            return await self._ask(effect)
        if isinstance(effect, Move):
            return await self._move(effect)
        if isinstance(effect, Proved):
            self.done.proved += len(effect.partitions)
            self._open.difference_update(Item(effect.peer, partition) for partition in effect.partitions)
            return None
        if isinstance(effect, Settled):
            self.done.settled += 1
            self._open.discard(Item(effect.peer, effect.partition))
            return None
        return await self._look(effect)

    async def _look(self, effect: Effect) -> object:
        device = self._node.device
        if isinstance(effect, ReadRoots):
            lacking = [partition for partition in effect.partitions if partition not in self._roots]
            if lacking:
                await self._read_roots(lacking)
            return [self._roots[partition] for partition in effect.partitions]
        if isinstance(effect, ReadSuffixes):
            return await self._transport.suffix_hashes(device, 0, effect.partition)
        if isinstance(effect, ReadEntries):
            entries: list[Entry] = []
            for suffix in effect.suffixes:
                entries += await self._transport.entries(device, 0, effect.partition, suffix)
            return slice_page(entries, effect.after, effect.limit)
        raise TypeError(f"{type(effect).__name__} is nothing that a primary's session wants")

    async def _read_roots(self, partitions: list[int]) -> None:
        """The own device's, many at a time."""
        for start in range(0, len(partitions), _BATCH):
            some = tuple(sorted(partitions[start : start + _BATCH]))
            request = Compare(0, self._terms.ring_version, some, _NOT_A_HASH)
            reply = decode_reply(await self._transport.ask(self._node.device, encode(request)))
            self._roots.update(zip(some, expect(reply, Roots).roots, strict=True))

    async def _ask(self, effect: Ask) -> object:
        peer = self._device(effect.peer)
        try:
            reply = decode_reply(await self._transport.ask(peer, encode(effect.request)))
        except NodeError:
            self._errors[effect.peer] = self._errors.get(effect.peer, 0) + 1
            if self._errors[effect.peer] >= ERROR_LIMIT:
                self.done.failed.add(effect.peer)
            raise
        self._errors.pop(effect.peer, None)
        return reply

    def _device(self, id_: int) -> Device:
        return self._cluster.by_device[id_].device

    async def _move(self, effect: Move) -> list[Fate]:
        peer, own = self._device(effect.peer), self._node.device
        source, target = (peer, own) if effect.pull else (own, peer)
        slots = asyncio.Semaphore(_LANES)

        async def one(push: Push) -> Fate:
            async with slots:
                return await self._bring(source, target, effect.partition, push)

        fates = await asyncio.gather(*(one(push) for push in effect.objects))
        self.done.moved += fates.count(Fate.MOVED)
        if effect.pull:
            self._roots.pop(effect.partition, None)
        return list(fates)

    async def _bring(self, source: Device, target: Device, partition: int, push: Push) -> Fate:
        try:
            await bring(self._transport, source, target, ObjectKey(0, partition, push.entry.digest), push)
        except (Superseded, NotFound):
            return Fate.OVERTAKEN
        return Fate.MOVED
