"""Large objects whose segments come as runs from real native servers: what goes wrong in the middle of a run.

Fault model: devices whose server ends while it is read from, or can't be reached at all; segments deleted, replaced or
made something else after their run has begun; clients that stop reading or go away.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import ClientPayloadError

from swiftlet.api.reading import segment_runs
from swiftlet.api.reading.segment_runs import MARKS
from swiftlet.api.tests.large import entry, md5, put_manifest, put_segments
from swiftlet.api.tests.proxy import Proxy, proxy_of
from swiftlet.boundaries.objects import RunPart
from swiftlet.front.tests.conftest import until
from swiftlet.front.tests.served import KEYS, NativeDevices
from swiftlet.placement.tests.cluster import MemoryCluster
from swiftlet.settings import LimitsSection
from swiftlet.transport.http_client import NodeClient
from swiftlet.transport.http_devices import HttpDevices
from swiftlet.transport.native_calls import NativeSettings
from swiftlet.transport.native_client import NativeClient
from swiftlet.transport.native_objects import NativeObjectTransport
from swiftlet.transport.native_runs import NativeRun

LIMITS = LimitsSection(slo_max_manifest_segments=2000)


class Runs:
    """A proxy that has runs from native servers; everything else it asks of the same stores directly."""

    def __init__(self, proxy: Proxy, devices: NativeDevices, client: NativeClient) -> None:
        self.proxy = proxy
        self.devices = devices
        self.client = client
        self.begun = 0
        self.parts: Sequence[RunPart] = ()
        """Of the last one."""
        cluster, transport = proxy.cluster, NativeObjectTransport(client, HttpDevices(NodeClient()))

        def open_run(*arguments: Any) -> Any:
            self.begun += 1
            self.parts = arguments[0]
            return transport.open_run(*arguments)

        cluster.transport.runs = transport.runs  # type: ignore[method-assign]
        cluster.transport.open_run = open_run  # type: ignore[method-assign,assignment]
        for device in cluster.devices:
            self.find(device.address, devices.ports[device.address])

    def find(self, address: str, port: int) -> None:
        """From now on a device's server is called there."""
        name = address.partition("/")[0]
        host, _, number = name.partition(":")
        node = self.client._start()
        self.client._current[host, int(number)] = node.peer(name, "127.0.0.1", port)

    @property
    def asked(self) -> int:
        """Requests that were made natively."""
        return sum(int(str(row["requests"])) for row in self.client.report())


@pytest.fixture
async def runs(cluster: MemoryCluster, tmp_path: Path) -> AsyncIterator[Runs]:
    devices = NativeDevices(cluster, tmp_path)
    client = NativeClient(NativeSettings(name="proxy@tests", pool_bytes=32 << 20), KEYS)
    async with proxy_of(cluster, tmp_path, limits=LIMITS) as proxy:
        yield Runs(proxy, devices, client)
    await client.close()
    devices.close()


def parts_of(count: int, size: int) -> list[bytes]:
    return [random.Random(number).randbytes(size) for number in range(count)]


async def put_parts(runs: Runs, parts: list[bytes]) -> None:
    assert (await put_manifest(runs.proxy, await put_segments(runs.proxy, parts))).status == 201


async def read(runs: Runs, path: str = "c/big", headers: dict[str, str] | None = None) -> bytes:
    return (await runs.proxy.call("GET", path, headers)).body


async def test_wholes_and_ranges(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_runs, "GATHER_S", 10.0)  # one run however slow the machine is
    parts = [*parts_of(20, 70_001), *parts_of(20, 10)]
    await put_parts(runs, parts)
    whole = b"".join(parts)
    assert await read(runs) == whole
    assert (runs.begun, runs.asked) == (1, len(parts) - 1), "the first one is read by itself"
    for start, stop in [(0, 70_002), (69_999, 1_000_000), (1_399_990, len(whole)), (5, 6)]:
        assert await read(runs, headers={"Range": f"bytes={start}-{stop - 1}"}) == whole[start:stop]
    await runs.proxy.call("PUT", "c/dyn", {"X-Object-Manifest": "c/s/"})
    begun = runs.begun
    assert await read(runs, "c/dyn") == whole
    assert runs.begun > begun


async def test_ten_thousand_small_segments(runs: Runs) -> None:
    parts = parts_of(20, 1024)
    entries = await put_segments(runs.proxy, parts)
    for number in range(10):
        assert (await put_manifest(runs.proxy, entries * 50, f"m{number}")).status == 201
    assert (await put_manifest(runs.proxy, [entry(f"m{number}") for number in range(10)])).status == 201
    assert await read(runs) == b"".join(parts) * 500
    assert runs.asked > 9000


@pytest.mark.parametrize("seconds", [0.0, 0.2])
async def test_a_server_that_ends_in_the_middle_is_replaced(runs: Runs, seconds: float) -> None:
    parts = parts_of(40, 300_000)
    await put_parts(runs, parts)
    response = await runs.proxy.open("GET", "c/big")
    first = await response.content.readexactly(310_000)
    await asyncio.sleep(seconds)
    runs.devices.stop(runs.proxy.cluster.devices[0], runs.proxy.cluster)
    assert first + await response.read() == b"".join(parts)


async def test_devices_that_can_not_be_reached_are_replaced(runs: Runs) -> None:
    parts = parts_of(30, 1000)
    await put_parts(runs, parts)
    for device in runs.proxy.cluster.devices[:2]:
        runs.find(device.address, 1)
    assert await read(runs) == b"".join(parts)


@pytest.mark.parametrize("how", ["gone", "other", "shorter", "link"])
async def test_a_segment_that_changes_in_the_middle_of_a_run_cuts_the_answer(runs: Runs, how: str) -> None:
    parts = parts_of(100, 300_000)
    await put_parts(runs, parts)
    response = await runs.proxy.open("GET", "c/big")
    await response.content.readexactly(310_000)
    if how == "gone":
        assert (await runs.proxy.call("DELETE", "c/s/080")).status == 204
    elif how == "link":
        await runs.proxy.call("PUT", "c/s/080", {"X-Symlink-Target": "c/s/001"})
    else:
        data = bytes(300_000) if how == "other" else b"x"
        assert (await runs.proxy.call("PUT", "c/s/080", data=data)).status == 201
    with pytest.raises((ClientPayloadError, ConnectionError)):
        await response.read()
    assert runs.asked < 95, "the run had stopped there"


async def test_what_is_made_up_in_between_is_read_as_what_it_is(runs: Runs) -> None:
    parts = parts_of(9, 2000)
    await put_parts(runs, parts)
    await runs.proxy.call("PUT", "c/link", {"X-Symlink-Target": "c/s/004"})
    entries = [entry(f"s/{number:03}") for number in (0, 1, 2)] + [entry("link"), entry("big"), entry("s/008")]
    assert (await put_manifest(runs.proxy, entries, "all")).status == 201
    assert await read(runs, "c/all") == b"".join([*parts[:3], parts[4], *parts, parts[8]])


async def test_a_large_object_of_nothing_that_runs_can_read_gives_them_up(runs: Runs) -> None:
    await put_segments(runs.proxy, [b"target"])
    for number in range(12):
        await runs.proxy.call("PUT", f"c/link{number}", {"X-Symlink-Target": "c/s/000"})
    entries = [entry(f"link{number}") for number in range(12)]
    assert (await put_manifest(runs.proxy, entries)).status == 201
    assert await read(runs) == b"target" * 12
    assert runs.begun == 3


async def test_who_may_not_read_a_segment_is_cut_off_there(runs: Runs) -> None:
    """Rights are those of each segment's container, as they are when its run begins."""
    parts = parts_of(3, 1000)
    entries = await put_segments(runs.proxy, parts)
    await runs.proxy.call("PUT", "secret")
    await runs.proxy.call("PUT", "secret/s", data=b"hidden")
    more = [{"path": "/secret/s", "etag": md5(b"hidden"), "size_bytes": 6}]
    assert (await put_manifest(runs.proxy, [*entries, *more])).status == 201
    assert await read(runs) == b"".join(parts) + b"hidden"
    await runs.proxy.call("POST", "c", {"X-Container-Read": ".r:*"})
    async with runs.proxy.client.get(runs.proxy.url("c/big")) as response:
        assert response.status == 200
        with pytest.raises((ClientPayloadError, ConnectionError)):
            await response.read()


async def test_a_client_that_stops_reading_stops_the_asking(runs: Runs) -> None:
    parts = parts_of(150, 256 * 1024)
    await put_parts(runs, parts)
    response = await runs.proxy.open("GET", "c/big")
    first = await response.content.readexactly(1)
    seen = -1
    while seen != runs.asked:
        seen = runs.asked
        await asyncio.sleep(0.5)
    assert seen < 100, "buffers of sockets and 2 MiB ahead"
    assert first + await response.read() == b"".join(parts)


async def test_what_was_copied_keeps_no_memory_that_others_wait_for(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 3 MiB for all that is received, others may have some while no more than half is in use."""
    monkeypatch.setattr(segment_runs, "GATHER_S", 10.0)
    small = NativeClient(NativeSettings(name="small@tests", pool_bytes=4 << 20), KEYS)
    crowded = Runs(runs.proxy, runs.devices, small)
    parts = [*parts_of(8, 256 * 1024), *parts_of(30, 10)]
    await put_parts(crowded, parts)
    async with asyncio.timeout(60):
        # On a slow machine the segments may come by several runs: of one that has all of them we need the parts.
        while sum(part.stop - part.start for part in crowded.parts) < sum(map(len, parts[1:])):
            await read(crowded)
    run = cast("NativeRun", runs.proxy.cluster.transport.open_run(crowded.parts, MARKS))
    run._look_no_more()  # The test says when.
    node = small.native()
    await until(lambda: node.upload_buffer(1 << 20) is None)
    native = run._run
    assert native is not None

    def has_room_once_copied() -> bool:
        # What arrives after a copy is copied by the next one.
        native.copy()
        return node.upload_buffer(1 << 20) is not None

    await until(has_room_once_copied)
    assert b"".join([chunk async for chunk in run.chunks()]) == b"".join(parts[1:])
    await run.close()
    await small.close()


async def test_a_client_that_goes_away_leaves_nothing_open(runs: Runs) -> None:
    await put_parts(runs, parts_of(100, 300_000))
    response = await runs.proxy.open("GET", "c/big")
    await response.content.readexactly(310_000)
    response.close()
    await until(lambda: runs.devices.at_work() == 0 and not runs.client._calls)
    asked = runs.asked
    await asyncio.sleep(0.2)
    assert runs.asked == asked
