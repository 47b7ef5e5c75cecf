"""A real container server tells of everything but rows that has changed, before the change is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from swiftlet.errors import NodeError
from swiftlet.model import ObjectRow
from swiftlet.servers.tests.listing_cluster import HASH_PATH, ListingCluster, http_cluster
from swiftlet.timestamp import Timestamp
from swiftlet.transport.http_listing import HttpListingTransport

PLACE = (3, "AUTH_a", "photos")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListingCluster]:
    async with http_cluster(tmp_path, 1) as made:
        yield made


async def test_all_but_rows_is_told(cluster: ListingCluster) -> None:
    transport, [device] = cluster.transport, cluster.devices
    assert isinstance(transport, HttpListingTransport)
    last = await transport.changes(device, "", 0)
    assert last.containers is None

    async def told() -> int:
        nonlocal last
        last = await transport.changes(device, last.epoch, last.number)
        assert last.containers is not None
        assert set(last.containers) <= {HASH_PATH(*PLACE[1:])}
        return len(last.containers)

    await transport.put_container(device, *PLACE, Timestamp(1), {}, None, 0)
    assert await told() == 1
    assert await told() == 0
    await transport.update_rows(device, *PLACE, [ObjectRow("o", Timestamp(2), 1)])
    assert await told() == 0
    await transport.post_container(device, *PLACE, Timestamp(3), {"X-Container-Read": ".r:*"})
    assert await told() == 1
    await transport.update_rows(device, *PLACE, [ObjectRow("o", Timestamp(4), deleted=True)])
    await transport.delete_container(device, *PLACE, Timestamp(5))
    assert await told() == 1
    await transport.put_account(device, 1, "AUTH_a", Timestamp(6), {})
    assert await told() == 0, "accounts are not told of"
    changes = (transport.post_container(device, *PLACE, Timestamp(9), {}) for _ in range(3))
    await asyncio.gather(transport.put_container(device, *PLACE, Timestamp(7), {}, None, 0), *changes)
    assert await told() >= 1


@pytest.mark.parametrize("fields", [{}, {"epoch": "e"}, {"epoch": 1, "number": 0}, {"epoch": "e", "number": -1}])
async def test_bad_questions_are_refused(cluster: ListingCluster, fields: dict[str, object]) -> None:
    transport, [device] = cluster.transport, cluster.devices
    assert isinstance(transport, HttpListingTransport)
    with pytest.raises(NodeError, match="field"):
        await transport._call(device, "POST", "/v1/changes", {}, fields)
