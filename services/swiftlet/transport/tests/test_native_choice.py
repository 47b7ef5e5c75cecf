"""Which transport a peer is spoken to over, and what happens when its native port goes and comes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from swiftlet.boundaries.objects import ContainerUpdate, UpdateOutcome, WriteReply
from swiftlet.errors import NodeBusy, NodeError, NodeTimeout, NodeUnreachable
from swiftlet.model import ObjectKey, PutFooter, PutRecord
from swiftlet.ring.model import Device
from swiftlet.servers.objects.native_pending import NativePending
from swiftlet.sync.session.messages import Compare, Equal, decode_reply, encode
from swiftlet.sync.session.roots import EMPTY_ROOT
from swiftlet.testing.storage.memory_objects import MemoryObjectTransport
from swiftlet.testing.storage.object_conformance import ROW, RowRecorder, record
from swiftlet.testing.store.conformance import footer_of, key_of
from swiftlet.testing.store.faulty_native import FaultyNativeStore
from swiftlet.testing.store.memory import MemoryStore
from swiftlet.transport.native_calls import NotMade
from swiftlet.transport.native_choice import FIRST_PAUSE_S, LAST_PAUSE_S, ChoosingObjectTransport, reason_of
from swiftlet.transport.native_metrics import FALLBACKS, NativeMetrics, by_transport
from swiftlet.transport.native_objects import NativeObjectTransport
from swiftlet.transport.tests.test_native_objects import client_of, device_at, served

BODY = b"data"


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Counting(MemoryObjectTransport):
    """HTTP's stand-in: rows are listed, calls counted."""

    def __init__(self, device: Device) -> None:
        super().__init__({device.address: MemoryStore()}, RowRecorder())
        self.puts = 0

    async def put(
        self,
        device: Device,
        key: ObjectKey,
        record: PutRecord,
        body: bytes,
        footer: PutFooter,
        row: ContainerUpdate | None,
    ) -> WriteReply:
        self.puts += 1
        return await super().put(device, key, record, body, footer, row)


async def outcome(transport: ChoosingObjectTransport, device: Device, number: int) -> UpdateOutcome:
    """What becomes of a write's row: PENDING over the native transport, LISTED over the other one."""
    return (await transport.put(device, key_of(number), record(number), BODY, footer_of(BODY), ROW)).row


def fallbacks(reason: str) -> float:
    """How many were counted."""
    return float(FALLBACKS.labels(reason)._value.get())


@asynccontextmanager
async def choosing(offset: int, http: Counting, clock: Clock) -> AsyncIterator[ChoosingObjectTransport]:
    async with client_of(offset) as native:
        transport = ChoosingObjectTransport(native, http, clock)
        yield transport
        await transport.close()


async def turns_native(transport: ChoosingObjectTransport, device: Device, clock: Clock) -> None:
    """Wait until a look beside the requests has succeeded."""
    async with asyncio.timeout(20):
        number = 1000
        while await outcome(transport, device, number) is not UpdateOutcome.PENDING:
            number += 1
            clock.now_s += LAST_PAUSE_S
            await asyncio.sleep(0.01)


async def test_native_where_it_answers_http_where_it_does_not_and_back() -> None:
    store = FaultyNativeStore()
    clock = Clock()
    device, _ = device_at(1)
    http = Counting(device)
    try:
        with served({"d1": store}) as (port, server):
            async with choosing(port - device.port, http, clock) as transport:
                assert [await outcome(transport, device, number) for number in (1, 2)] == [UpdateOutcome.PENDING] * 2
                assert http.puts == 0
                before = fallbacks("unreachable")
                server.stop()
                # The first ones may still be sent over the connection that is breaking: they are not repeated.
                async with asyncio.timeout(20):
                    for number in itertools.count(3):
                        with contextlib.suppress(NodeError):
                            assert await outcome(transport, device, number) is UpdateOutcome.LISTED
                            break
                assert http.puts == 1
                assert fallbacks("unreachable") == before + 1
                assert await outcome(transport, device, 60) is UpdateOutcome.LISTED
                with served({"d1": store}) as (_, again):
                    again.stop()
                clock.now_s += LAST_PAUSE_S
                assert await outcome(transport, device, 61) is UpdateOutcome.LISTED
                stream = await transport.open_put(device, key_of(62), record(62), 4, ROW)
                await stream.write(BODY)
                assert (await stream.commit(footer_of(BODY))).row is UpdateOutcome.LISTED
                await transport.acknowledge(device, [(key_of(1), record(1).timestamp)])
                assert NativePending(store).count() == 2, "what is acknowledged meanwhile the device delivers by itself"
    finally:
        store.close()


async def test_a_port_that_opens_later_is_found() -> None:
    store = FaultyNativeStore()
    clock = Clock()
    device, _ = device_at(1)
    http = Counting(device)
    try:
        with served({"d1": store}) as (port, server):
            server.set_keys([b"not yet the cluster's key"])
            async with choosing(port - device.port, http, clock) as transport:
                before = fallbacks("denied")
                answers = await asyncio.gather(*(outcome(transport, device, number) for number in range(20)))
                assert set(answers) == {UpdateOutcome.LISTED}
                assert fallbacks("denied") == before + 1, "one look for all of them"
                server.set_keys([b"the cluster's key"])
                assert await outcome(transport, device, 50) is UpdateOutcome.LISTED, "not before the pause is over"
                clock.now_s += FIRST_PAUSE_S
                await turns_native(transport, device, clock)
    finally:
        store.close()


async def test_a_request_that_may_have_been_sent_is_not_made_again() -> None:
    device, _ = device_at(1)
    http = Counting(device)

    class Losing(NativeObjectTransport):
        async def probe(self, device: Device) -> None:
            return None

        async def head(self, device: Device, key: ObjectKey, *, proved: bool = False) -> None:  # type: ignore[override]
            raise NodeUnreachable("connection lost")

    async with client_of(0) as native:
        transport = ChoosingObjectTransport(Losing(native.client), http)
        with pytest.raises(NodeUnreachable):
            await transport.head(device, key_of(1))
        assert http.link(device).calls == 0
        await transport.close()


async def test_where_it_must_be_native_objects_never_go_over_http_and_questions_always_do() -> None:
    store = FaultyNativeStore()
    device, _ = device_at(1)
    http = Counting(device)
    try:
        with served({"d1": store}) as (port, server):
            async with client_of(port - device.port) as native:
                transport = ChoosingObjectTransport(native, http, must_be_native=True)
                assert await outcome(transport, device, 1) is UpdateOutcome.PENDING
                assert transport.native_peer(device) is not None
                question = encode(Compare(0, 1, (0,), EMPTY_ROOT))
                assert isinstance(decode_reply(await transport.ask(device, question)), Equal)
                server.stop()
                with pytest.raises(NodeError):
                    await outcome(transport, device, 2)
                await transport.close()
    finally:
        store.close()
    assert http.puts == 0


def test_reasons() -> None:
    assert reason_of(NotMade("x: not reachable: Connection refused")) == "unreachable"
    assert reason_of(NotMade("refused by a peer of versions 1 to 1: no common key")) == "denied"
    assert reason_of(NotMade("another server answered: x")) == "denied"
    assert reason_of(NodeBusy("too many")) == "busy"
    assert reason_of(NodeTimeout("late")) == "failed"


async def test_what_is_counted() -> None:
    store = FaultyNativeStore()
    try:
        with served({"d1": store}) as (port, _):
            device, offset = device_at(port)
            async with client_of(offset) as transport:
                metrics = NativeMetrics(transport.client.report)
                metrics.take()
                assert by_transport(transport.client.report()) == {}
                await transport.put(device, key_of(1), record(1), BODY, footer_of(BODY), None)
                metrics.take()
                metrics.take()
                assert by_transport(transport.client.report()) == {"tcp": 1}
            metrics.take()
    finally:
        store.close()
    from prometheus_client import REGISTRY

    def sample(name: str, **labels: str) -> float | None:
        return REGISTRY.get_sample_value(f"swiftlet_transport_{name}", {"peer": "127.0.0.1:6200", **labels})

    assert (sample("requests_total") or 0) >= 1
    assert (sample("sent_bytes_total") or 0) > len(BODY)
    assert (sample("request_seconds_total") or 0) > 0
    assert sample("connected", transport="tcp") == 0
