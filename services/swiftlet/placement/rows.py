"""Which device tells which container replica of a write, and what is done when one of them no longer can.

Each of a write's slots tells its share of the container's replicas, so that together they tell all. A slot that is
lost (its device died in the middle of a streamed upload, or there was no spare left) leaves its share untold. The
replicas of the container would find the missing row by themselves in time, but a client expects to see in any listing
what it just wrote: so the untold replicas are told from here, within a bounded wait.

Fault model: the container replica may be down as well. Then nothing more is done; its peers have the row and bring it.
"""

from __future__ import annotations

import asyncio

import structlog

from swiftlet.errors import SwiftletError
from swiftlet.model import ObjectRow
from swiftlet.names import HashPath, Path
from swiftlet.peers import ListingTransport, RowFate, RowUpdate, WriteReply
from swiftlet.placement.fanout import Outcome
from swiftlet.placement.rings import Rings

_log = structlog.get_logger("placement")


class RowRouter:
    """Shares a write's row out among its slots."""

    def __init__(self, rings: Rings, transport: ListingTransport, hash_path: HashPath, wait_s: float) -> None:
        """`wait_s` bounds the time that telling the untold may take."""
        self._rings = rings
        self._transport = transport
        self._hash_path = hash_path
        self._wait_s = wait_s

    def share(self, path: Path, index: int, slots: int) -> RowUpdate:
        """The container replicas that slot `index` of `slots` tells."""
        assert path.container is not None
        ring = self._rings.container()
        count = len(ring.primaries(ring.partition_of(self._hash_path(path.account, path.container))))
        told = {index % count} | set(range(index, count, slots))
        return RowUpdate(path.account, path.container, tuple(sorted(told)))

    async def make_up(self, path: Path, row: ObjectRow, outcome: Outcome[WriteReply], slots: int) -> None:
        """Tell the container replicas that no slot has answered for."""
        assert path.container is not None
        ring = self._rings.container()
        partition = ring.partition_of(self._hash_path(path.account, path.container))
        told = {
            replica
            for index, _, reply in outcome.replies
            if reply.row is not RowFate.NONE
            for replica in self.share(path, index, slots).replicas
        }
        untold = [device for replica, device in enumerate(ring.primaries(partition)) if replica not in told]
        if not untold:
            return
        calls = (
            self._transport.update_rows(device, partition, path.account, path.container, [row]) for device in untold
        )
        try:
            async with asyncio.timeout(self._wait_s):
                for answer in await asyncio.gather(*calls, return_exceptions=True):
                    if isinstance(answer, SwiftletError):
                        _log.info("container replica untold", path=str(path), error=str(answer))
                    elif isinstance(answer, BaseException):
                        raise answer
        except TimeoutError:
            _log.info("container replica untold", path=str(path), error=f"no answer within {self._wait_s:g} s")
