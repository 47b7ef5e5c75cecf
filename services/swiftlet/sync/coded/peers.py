"""The devices that a round of repairs asks, and which of them it asks no more.

Fault model: a device may be away, answer garbage, or go by another ring: its places are not those that the round means.
It is left out for the rest of the round. A device that failed too often with single objects is as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from typing import TypeVar

import structlog

from swiftlet.errors import NodeTimeout, NodeUnreachable, SwiftletError, Unavailable
from swiftlet.ring.model import Device
from swiftlet.sync.asking.questions import Questions
from swiftlet.sync.coded.layout import CodedRing, store_partition_of
from swiftlet.sync.failures.neighbours import Neighbours, node_of
from swiftlet.sync.session.messages import Compare, Reply, Request

MOST_FAILURES = 16
"""Failures with single fragments after which a device is left out for the rest of a round."""
NO_HASH = b"\xff" * 16
"""A hash that no partitions have: a device that finds it different from its own answers with its roots."""

T = TypeVar("T")
_log = structlog.get_logger("replicator")


class Peers:
    """Asks the devices of one policy's ring for one round."""

    def __init__(self, questions: Questions, neighbours: Neighbours, coded: CodedRing) -> None:
        """`neighbours` know who is not to be asked, and are told who answers."""
        self._questions = questions
        self._neighbours = neighbours
        self._coded = coded
        self._left_out = set(neighbours.away(coded.ring.devices))
        self._asked: set[int] = set()
        self._failures: Counter[int] = Counter()

    def is_usable(self, device: Device) -> bool:
        """Return whether a device may be asked."""
        return device.id not in self._left_out

    async def ask(self, device: Device, request: Request) -> Reply:
        """Return the answer of a device's server. Raises NodeError, and Unavailable when it goes by another ring."""
        reply = await self.calling(device, self._questions.ask(device, request))
        if reply.ring_version != self._coded.ring.version:
            self._left_out.add(device.id)
            raise Unavailable(
                f"{device.name} goes by version {reply.ring_version} of the ring, not {self._coded.ring.version}"
            )
        self._asked.add(device.id)
        return reply

    async def is_ours(self, device: Device, partition: int) -> bool:
        """Return whether a device answers, and goes by the same ring."""
        if device.id not in self._asked and self.is_usable(device):
            place = next(at for at, one in enumerate(self._coded.ring.primaries(partition)) if one.id == device.id)
            store_partitions = (store_partition_of(partition, place),)
            try:
                await self.ask(device, Compare(self._coded.policy, self._coded.ring.version, store_partitions, NO_HASH))
            except SwiftletError as error:
                _log.info("a device is not counted on", device=device.name, error=str(error))
        return device.id in self._asked and self.is_usable(device)

    async def calling(self, device: Device, call: Awaitable[T]) -> T:
        """Return what a call to a device returns; note whether it can be reached."""
        try:
            result = await call
        except (NodeUnreachable, NodeTimeout):
            # Of several calls at a time that fail for one reason the first one counts.
            if self.is_usable(device):
                self._neighbours.failed(node_of(device))
            self.leave_out(device)
            raise
        except SwiftletError:
            self.failed(device)
            raise
        self._neighbours.succeeded(node_of(device))
        return result

    def leave_out(self, device: Device) -> None:
        """Ask a device no more."""
        self._left_out.add(device.id)

    def failed(self, device: Device) -> None:
        """Note that something failed at a device that can be reached."""
        self._failures[device.id] += 1
        if self._failures[device.id] == MOST_FAILURES:
            _log.warning("a device is left out of the rest of a round of repairs", device=device.name)
            self._left_out.add(device.id)
