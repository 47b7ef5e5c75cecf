"""Listings of objects with erasure coding: rows that are damaged are put right by what a quorum of places says, and no
row is taken back while any device may have something of its object.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path as Directory
from typing import Any, cast

import pytest

from swiftlet.api.tests.coded import CODED, CODING, CodedServers, coded_proxy
from swiftlet.api.tests.proxy import Proxy
from swiftlet.api.tests.test_coded_repair import places_of
from swiftlet.api.tests.test_erasure_coding import body_of
from swiftlet.model import ObjectRow
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, HASH_PATH, at
from swiftlet.sync.audit.coded import Coded
from swiftlet.sync.audit.looking import Objects
from swiftlet.sync.audit.objects import ObjectsAudit
from swiftlet.sync.audit.rows import RowsAudit
from swiftlet.sync.audit.tests.auditing import SETTINGS, container_id, one_of, rows_of
from swiftlet.transport.http_devices import HttpDevices
from swiftlet.transport.native_coded_repair import NativeCodedRepair
from swiftlet.transport.native_objects import NativeObjectTransport
from swiftlet.transport.native_replicas import NativeReplicas

SIZES = (1, 1000, 9000)


@dataclass
class Audited:
    """A proxy with some coded objects, and the auditors of all devices."""

    proxy: Proxy
    servers: CodedServers

    async def run_once(self, *, rows: bool = True, objects: bool = True) -> int:
        """Return how many wrong rows one pass of each walk has found, long after the last write."""
        cluster, ring = self.proxy.cluster, self.servers.ring
        transport = NativeObjectTransport(self.servers.client, cast("HttpDevices", None))
        head = NativeReplicas(self.servers.client).head
        repair = NativeCodedRepair(self.servers.coded)
        coded = Coded(self.servers.coded, repair, head, lambda _: ring, lambda _: CODING)
        judge, listings = Objects(lambda _policy: coded, HASH_PATH), cluster.listing_transport
        now_s = self.proxy.clock.now + 1000
        found = 0
        for device in cluster.devices if rows else ():
            walk = RowsAudit(
                listings, judge, one_of(device), cluster.rings.container, HASH_PATH, SETTINGS, lambda: now_s
            )
            found += await walk.run_once()
        for number in range(len(self.servers.stores)) if objects else ():
            if number in self.servers.client.away:
                continue
            own, container_ring = one_of(ring.device(number)), cluster.rings.container
            audit = ObjectsAudit(
                transport,
                listings,
                judge,
                own,
                lambda _: ring,
                container_ring,
                HASH_PATH,
                SETTINGS,
                lambda: now_s,
            )
            found += await audit.run_once([CODED])
        return found

    async def rows(self) -> dict[str, ObjectRow]:
        """Return the rows, which all replicas have alike."""
        found = [await rows_of(self.proxy.cluster, device) for device in self.proxy.cluster.container_devices()]
        assert all(one == found[0] for one in found)
        return found[0]

    async def put_row(self, row: ObjectRow) -> None:
        """Have all replicas list a row as it is, whatever they have under its name."""
        cluster = self.proxy.cluster
        for device in cluster.container_devices():
            seen = (await rows_of(cluster, device)).get(row.name)
            if seen is None:
                partition = cluster.container_partition()
                await cluster.listing_transport.update_rows(device, partition, ACCOUNT, CONTAINER, [row])
            else:
                changes = [(seen, row)]
                assert await cluster.listing_transport.replace_rows(device, container_id(cluster), changes) == 1

    async def assert_right(self) -> None:
        """Check that the listing has exactly the objects, each as it is read."""
        rows = await self.rows()
        assert sorted(rows) == sorted(f"o{size}" for size in SIZES)
        for name, row in rows.items():
            info = await self.proxy.cluster.objects.head(Path(ACCOUNT, CONTAINER, name), CODED)
            assert row == ObjectRow.of(name, info)


@pytest.fixture
async def audited(tmp_path: Directory) -> AsyncIterator[Audited]:
    async with coded_proxy(tmp_path) as (proxy, servers):
        for size in (*SIZES, 2000):
            assert (await proxy.call("PUT", f"c/o{size}", data=body_of(size))).status == 201
        proxy.clock.now += 1
        assert (await proxy.call("POST", f"c/o{SIZES[1]}", {"Content-Type": "text/x", "X-Object-Meta-A": "1"})).status
        assert (await proxy.call("DELETE", "c/o2000")).status == 204
        yield Audited(proxy, servers)


async def test_nothing_is_wrong_in_a_store_that_is_well(audited: Audited) -> None:
    assert await audited.run_once() == 0
    await audited.assert_right()


@pytest.mark.parametrize(
    "changes",
    [
        {"size": 99_999},
        {"etag": "f" * 32},
        {"etag": "0" * 32},
        {"content_type": "zzz/zzz"},
        {"content_type": "aaa/aaa"},
        {"deleted": True},
    ],
)
@pytest.mark.parametrize("walk", ["rows", "objects"])
async def test_a_damaged_row_is_put_right(audited: Audited, changes: dict[str, Any], walk: str) -> None:
    row = replace((await audited.rows())["o9000"], **changes).plain
    await audited.put_row(row)
    is_deleted = "deleted" in changes
    # The walk of rows does not look at what is not listed.
    assert (await audited.run_once(rows=walk == "rows", objects=walk == "objects") > 0) == (
        walk == "objects" or not is_deleted
    )
    if walk == "objects" or not is_deleted:
        await audited.assert_right()
        assert await audited.run_once() == 0


async def test_a_ghost_goes_and_one_of_a_deleted_object_too(audited: Audited) -> None:
    for name in ("ghost", "o2000"):
        await audited.put_row(ObjectRow(name, at(1), 5, "text/plain", "e" * 32))
    assert await audited.run_once() > 0
    await audited.assert_right()
    assert await audited.run_once() == 0


async def test_a_missing_row_is_brought_while_devices_are_away(audited: Audited) -> None:
    await audited.put_row(ObjectRow("o9000", at(1), deleted=True))
    with audited.servers.away(1, 4):
        assert await audited.run_once() > 0
    await audited.assert_right()


async def test_no_row_is_taken_back_while_a_device_is_away(audited: Audited) -> None:
    await audited.put_row(ObjectRow("ghost", at(1), 5, "text/plain", "e" * 32))
    with audited.servers.away(3):
        assert await audited.run_once() == 0
    with audited.servers.away(0, 1, 2):
        assert await audited.run_once() == 0
    assert "ghost" in await audited.rows()
    assert await audited.run_once() > 0
    await audited.assert_right()


async def test_no_row_is_taken_back_while_any_device_shows_a_fragment(audited: Audited) -> None:
    before = await audited.rows()
    # One more than may be lost: what is left can't be read.
    for device in places_of(audited.servers, "o9000").at[: CODING.parity + 1]:
        await audited.servers.replace(device.id)
    assert await audited.run_once() == 0
    assert await audited.rows() == before
