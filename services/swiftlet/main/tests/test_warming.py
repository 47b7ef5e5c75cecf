"""Connections to other regions are there before the first request needs them."""

from __future__ import annotations

import contextlib

import pytest

from swiftlet.main.warming import Warming
from swiftlet.placement.plan import ANYWHERE, Place
from swiftlet.ring.model import Device
from swiftlet.testing.storage.object_conformance import record
from swiftlet.testing.store.conformance import footer_of, key_of
from swiftlet.testing.store.faulty_native import FaultyNativeStore
from swiftlet.transport.modes import Encryption
from swiftlet.transport.native_objects import NativeObjectTransport
from swiftlet.transport.tests.test_native_objects import PORT, client_of, served

FAR = Device(0, "far", "127.0.0.1", PORT, "d", "west", "z", "n", 1.0)
NEAR = Device(1, "near", "127.0.0.2", PORT, "d", "east", "z", "n", 1.0)
UNREACHABLE = Device(2, "unreachable", "127.0.0.3", PORT, "d", "north", "z", "n", 1.0)


def connects(transport: NativeObjectTransport) -> dict[object, object]:
    return {row["peer"]: row["connects"] for row in transport.client.report()}


@pytest.mark.parametrize("encryption", ["none", "required"])
async def test_the_first_write_to_another_region_takes_one_trip_as_all_others(
    encryption: Encryption,
) -> None:
    with contextlib.closing(FaultyNativeStore()) as store, served({"d": store}, encryption=encryption) as (port, _):
        async with client_of(port - PORT, encryption=encryption) as transport:
            warming = Warming(transport.client, Place("east"), lambda: [NEAR, UNREACHABLE, FAR])
            assert warming.cold() == [UNREACHABLE, FAR]
            await warming.look()
            # Nothing is connected to within the region, where that takes no time that counts.
            made = {f"{FAR.host}:{FAR.port}": 1, f"{UNREACHABLE.host}:{UNREACHABLE.port}": 0}
            assert connects(transport) == made
            assert warming.cold() == [UNREACHABLE]
            # TCP, TLS and the handshake are over, so that only the request is left.
            await transport.put(FAR, key_of(1), record(1), b"data", footer_of(b"data"), None)
            assert connects(transport) == made


async def test_who_does_not_know_its_region_connects_when_it_has_to() -> None:
    async with client_of(0) as transport:
        warming = Warming(transport.client, ANYWHERE, lambda: [NEAR, FAR])
        await warming.look()
        assert connects(transport) == {}
