"""Rounds that compare every partition of the local devices with all of its other replicas, and push what is newer.

This is the original, all-to-all way: the suffix hashes of a partition go to every peer. Each side pushes only; what
the peer has newer it pushes in its own round.

A device that is not among a partition's primaries holds it as a handoff: it pushes to all primaries, and forgets an
object only after every primary has shown an entry that lacks nothing of it.

Fault model: any peer may be down, slow, or fail in the middle of a push. Its partition is counted as failed, logged,
and compared again in the next round; the round goes on. An object that a peer will not have (it is damaged here, or
the peer is full) does not keep those behind it from going there. A replicator may be killed at any point: it keeps no
state.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog
from prometheus_client import Counter, Gauge, Histogram

from swiftlet.errors import DeviceFailed, NodeError, NotFound, Superseded, SwiftletError
from swiftlet.model import Entry, ObjectInfo, ObjectKey, PostRecord, PutFooter, PutRecord
from swiftlet.peers import ObjectTransport
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.sync.compare import Need, Push, differing_suffixes, need_of, pushes
from swiftlet.timestamp import ZERO

_log = structlog.get_logger("replicator")

SMALL_BYTES = 1 << 20
"""Objects up to this size travel in one round trip."""

ROUNDS = Counter("swiftlet_replicator_rounds_total", "Rounds completed.")
ROUND_SECONDS = Histogram(
    "swiftlet_replicator_round_seconds", "Duration of rounds.", buckets=(0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600)
)
COMPARED = Counter("swiftlet_replicator_compared_total", "Comparisons of a partition with one peer.", ["result"])
PUSHED = Counter("swiftlet_replicator_pushed_total", "Objects, metadata and tombstones sent to peers.", ["need"])
PUSHED_BYTES = Counter("swiftlet_replicator_pushed_bytes_total", "Bytes of objects sent to peers.")
REMOVED = Counter("swiftlet_replicator_handoffs_removed_total", "Handoff copies forgotten after they went home.")
LAST_ROUND = Gauge("swiftlet_replicator_last_round_timestamp_seconds", "When the last round ended.")


@dataclass(slots=True)
class RoundReport:
    """What one round did."""

    compared: int = 0
    in_sync: int = 0
    failed: int = 0
    pushed: int = 0
    removed: int = 0
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        """Whether every comparison found equality."""
        return self.compared == self.in_sync and not self.failed


@dataclass(frozen=True, slots=True)
class _Partition:
    device: Device
    policy: int
    number: int


class Replicator:
    """Keeps the objects of some local devices equal with their other replicas."""

    def __init__(
        self,
        local: Callable[[Ring], Sequence[Device]],
        rings: Callable[[int], Ring],
        transport: ObjectTransport,
        concurrency: int = 4,
    ) -> None:
        """`local` picks the devices of a ring that this replicator works for; `rings` gives a policy's ring."""
        self._local = local
        self._rings = rings
        self._transport = transport
        self._slots = asyncio.Semaphore(concurrency)

    async def run_round(self, policies: Sequence[int]) -> RoundReport:
        """Compare every partition of every local device once, in random order."""
        began = time.monotonic()
        report = RoundReport()
        work = [
            p
            for policy in policies
            for d in self._local(self._rings(policy))
            for p in await self._held(d, policy, report)
        ]
        random.shuffle(work)
        for start in range(0, len(work), 1024):
            await asyncio.gather(*(self._bounded(partition, report) for partition in work[start : start + 1024]))
        report.seconds = time.monotonic() - began
        ROUNDS.inc()
        ROUND_SECONDS.observe(report.seconds)
        LAST_ROUND.set_to_current_time()
        return report

    async def _held(self, device: Device, policy: int, report: RoundReport) -> list[_Partition]:
        try:
            return [_Partition(device, policy, n) for n in await self._transport.partitions(device, policy)]
        except SwiftletError as error:
            report.failed += 1
            _log.warning("local device not readable", device=device.name, error=str(error))
            return []

    async def _bounded(self, partition: _Partition, report: RoundReport) -> None:
        async with self._slots:
            await self._partition(partition, report)

    async def _partition(self, partition: _Partition, report: RoundReport) -> None:
        primaries = self._rings(partition.policy).primaries(partition.number)
        peers = [device for device in primaries if device.id != partition.device.id]
        handoff = len(peers) == len(primaries)
        try:
            mine = await self._transport.suffix_hashes(partition.device, partition.policy, partition.number)
        except SwiftletError as error:
            report.failed += 1
            _log.warning("local device not readable", device=partition.device.name, error=str(error))
            return
        if not mine:
            return
        agreed = [await self._with_peer(partition, mine, peer, report) for peer in peers]
        if handoff and all(agreed):
            await self._go_home(partition, list(mine), peers, report)

    async def _with_peer(
        self, partition: _Partition, mine: Mapping[str, bytes], peer: Device, report: RoundReport
    ) -> bool:
        report.compared += 1
        try:
            theirs = await self._transport.suffix_hashes(peer, partition.policy, partition.number)
            differing = differing_suffixes(mine, theirs)
            refused = 0
            for suffix in differing:
                refused += await self._push_suffix(partition, suffix, peer, report)
        except SwiftletError as error:
            report.failed += 1
            COMPARED.labels("failed").inc()
            _log.info("peer skipped", peer=peer.name, partition=partition.number, error=str(error))
            return False
        if refused:
            report.failed += 1
            COMPARED.labels("failed").inc()
            return False
        report.in_sync += not differing
        COMPARED.labels("differs" if differing else "equal").inc()
        return True

    async def _push_suffix(self, partition: _Partition, suffix: str, peer: Device, report: RoundReport) -> int:
        """Send what the peer lacks of a suffix; how many objects it refused."""
        refused = 0
        mine = await self._transport.entries(partition.device, partition.policy, partition.number, suffix)
        theirs = await self._transport.entries(peer, partition.policy, partition.number, suffix)
        for push in pushes(mine, theirs):
            key = ObjectKey(partition.policy, partition.number, push.entry.digest)
            try:
                await self._push(partition.device, peer, key, push)
            except (Superseded, NotFound) as error:
                # It changed under us, on either side; the next round compares anew.
                _log.debug("push overtaken", peer=peer.name, key=key.hex, reason=str(error))
            except (NodeError, DeviceFailed):
                raise
            except SwiftletError as error:
                refused += 1
                _log.warning("push refused", peer=peer.name, key=key.hex, error=str(error))
            else:
                report.pushed += 1
                PUSHED.labels(push.need.value).inc()
        return refused

    async def _push(self, source: Device, peer: Device, key: ObjectKey, push: Push) -> None:
        if push.need is Need.TOMBSTONE:
            await self._transport.delete(peer, key, push.entry.timestamp, "", None)
            return
        if push.need is Need.DATA:
            info = await self._copy(source, peer, key)
        else:
            info = await self._transport.head(source, key)
        if info.meta_timestamp > info.timestamp or info.content_type_timestamp > info.timestamp:
            await self._transport.post(peer, key, _post_of(info))

    async def _copy(self, source: Device, peer: Device, key: ObjectKey) -> ObjectInfo:
        stream = await self._transport.get(source, key)
        info = stream.info
        record = PutRecord(info.name, info.timestamp, info.content_type, info.metadata, info.sysmeta)
        footer = PutFooter(info.size, info.etag, info.xxh3)
        try:
            if info.size <= SMALL_BYTES:
                body = b"".join([chunk async for chunk in stream.chunks()])
                await self._transport.put(peer, key, record, body, footer, None)
            else:
                upload = await self._transport.open_put(peer, key, record, info.size, None)
                try:
                    async for chunk in stream.chunks():
                        await upload.write(chunk)
                    await upload.commit(footer)
                finally:
                    await upload.abort()
        finally:
            await stream.close()
        PUSHED_BYTES.inc(info.size)
        return info

    async def _go_home(
        self, partition: _Partition, suffixes: list[str], primaries: list[Device], report: RoundReport
    ) -> None:
        """Forget handoff copies that every primary has shown to hold."""
        for suffix in suffixes:
            try:
                mine = await self._transport.entries(partition.device, partition.policy, partition.number, suffix)
                shown = [
                    {e.digest: e for e in await self._transport.entries(d, partition.policy, partition.number, suffix)}
                    for d in primaries
                ]
                for entry in mine:
                    if all(need_of(entry, there.get(entry.digest)) is None for there in shown):
                        await self._forget(partition, entry, report)
            except SwiftletError as error:
                report.failed += 1
                _log.info("handoff kept", partition=partition.number, error=str(error))
                return

    async def _forget(self, partition: _Partition, entry: Entry, report: RoundReport) -> None:
        key = ObjectKey(partition.policy, partition.number, entry.digest)
        if await self._transport.remove(partition.device, key, entry):
            report.removed += 1
            REMOVED.inc()


def _post_of(info: ObjectInfo) -> PostRecord:
    own_type = info.content_type_timestamp > info.timestamp
    return PostRecord(
        info.meta_timestamp,
        info.metadata,
        info.content_type if own_type else None,
        info.content_type_timestamp if own_type else ZERO,
    )
