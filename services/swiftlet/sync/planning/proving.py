"""Proves to the local servers that their devices lack nothing that was acknowledged while they were away.

A device that was just started, stood still or missed writes is in doubt (`swiftlet_native.Doubts`), and readers go
elsewhere. Its replicator reads the number of the doubt before a round. During the round and after it, the replicator
tells the server which partitions were compared with all their other primaries since then and lack nothing.

A round proves nothing if it begins less than `RIPE_S` after the doubt: sessions leave alone what is younger than
`IN_FLIGHT_S`, and proxies that take the device for failed may write past it for as long.

Fault model: the server may be started again in the middle of a round. Then the number is another one, and the proof
does not count. A neighbour may be away: what it shares with the device stays in doubt until it is back.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import structlog

from swiftlet.boundaries.objects import MAX_PLACES, DoubtTransport, PendingDoubt, Verdict
from swiftlet.errors import SwiftletError
from swiftlet.ring.model import Device
from swiftlet.sync.planning.device_partitions import DevicePartitions
from swiftlet.sync.session.compare import IN_FLIGHT_S

RIPE_S = IN_FLIGHT_S + 2.0
"""Seconds from the beginning of a doubt until a round may begin that ends it."""
TELL_S = 1.0
"""Seconds between two messages to the server about what the round has proved so far."""
_PAUSE_S = 2.0
"""Seconds from the end of a round that left doubts until another one begins because of them."""

_log = structlog.get_logger("replicator")


class Proving:
    """The proofs that the rounds of one replicator send to the local devices' servers."""

    def __init__(self, transport: DoubtTransport, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns monotonic seconds."""
        self._transport = transport
        self._clock = clock
        self._not_before_s = 0.0
        self._epochs: dict[str, int] = {}
        """The number of the doubt that this round may end, by the address of the device."""
        self._rings_of: Counter[str] = Counter()
        self._told: dict[tuple[str, int], set[int]] = {}

    async def _judge(self, device: Device, verdict: Verdict) -> PendingDoubt | None:
        try:
            return await self._transport.judge(device, verdict)
        except SwiftletError as error:
            _log.debug("a local device could not be told what is proved", device=device.name, error=str(error))
            return None

    async def is_due(self, devices: Iterable[Device]) -> bool:
        """Return whether a round should begin now because a device is in doubt."""
        if self._clock() < self._not_before_s:
            return False
        found = [await self._judge(device, Verdict()) for device in _once(devices)]
        return any(pending is not None and pending.age_s >= RIPE_S for pending in found)

    async def begin(self, devices: Iterable[Device]) -> None:
        """Note at the beginning of a round which devices it may prove.

        `devices` has each device once for every ring that it is in.
        """
        self._epochs, self._told = {}, {}
        devices = list(devices)
        self._rings_of = Counter(device.address for device in devices)
        for device in _once(devices):
            pending = await self._judge(device, Verdict())
            if pending is not None and pending.age_s >= RIPE_S:
                self._epochs[device.address] = pending.epoch

    async def telling(self, own_devices: Sequence[DevicePartitions]) -> None:
        """Tell the servers every second what the round has proved, until it is cancelled or has nothing to prove."""
        while self._epochs:
            await asyncio.sleep(TELL_S)
            for own in own_devices:
                await self._tell(own)

    async def _tell(self, own: DevicePartitions) -> None:
        epoch = self._epochs.get(own.device.address)
        if epoch is None:
            return
        told = self._told.setdefault((own.device.address, own.policy), set())
        news = sorted(own.standing.proved - told)
        for some in (news[at : at + MAX_PLACES] for at in range(0, len(news), MAX_PLACES)):
            places = [(own.policy, partition) for partition in some]
            await self._judge(own.device, Verdict(proved=places, epoch=epoch))
            told.update(some)

    async def end(self, own_devices: Sequence[DevicePartitions], begun_s: float, complete: bool) -> None:
        """Tell the servers the result of a round that began at `begun_s`.

        `complete` tells that the round was about all partitions and peers, in unchanged rings of all policies.
        """
        if not self._epochs:
            return
        took_s = self._clock() - begun_s
        for own in own_devices:
            await self._tell(own)
        left = False
        for address, epoch in self._epochs.items():
            mine = [own for own in own_devices if own.device.address == address]
            whole = complete and len(mine) == self._rings_of[address] and all(own.standing.is_proved for own in mine)
            pending = await self._judge(mine[0].device, Verdict(whole=whole, epoch=epoch)) if mine else None
            left = left or pending is not None
            if whole:
                _log.info("a device is proved equal to its peers", device=mine[0].device.name, seconds=round(took_s, 3))
        self._not_before_s = self._clock() + max(_PAUSE_S, 2 * took_s) if left else 0.0


def _once(devices: Iterable[Device]) -> list[Device]:
    """Return each device once, however many rings it is in."""
    return list({device.address: device for device in devices}.values())
