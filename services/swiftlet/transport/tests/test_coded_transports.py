"""The conformance suite of `CodedTransport` against the twin in memory; natively it is in `test_coded_conformance` of
`swiftlet.api.tests`, which has the servers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from swiftlet.ring import RingBuilder
from swiftlet.ring.model import Coding
from swiftlet.testing.storage.coded_conformance import DEVICES, CodedPeer, CodedTransportConformance
from swiftlet.testing.storage.memory_coded import MemoryCoded

CODING = Coding(4, 2, 1024)


class TestInMemory(CodedTransportConformance):
    @asynccontextmanager
    async def connected(self) -> AsyncIterator[CodedPeer]:
        builder = RingBuilder(4, CODING.fragments, min_part_hours=0)
        for number in range(DEVICES):
            builder.add_device(host="127.0.0.1", port=1 + number, device="d", region="r", zone=f"z{number}", weight=1)
        builder.rebalance(1)
        transport = MemoryCoded()
        yield CodedPeer(transport, builder.ring, 1, CODING, transport.away)
