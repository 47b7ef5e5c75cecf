"""Many clients at once at object servers that let in fewer: who finds no room is told so and goes over HTTP.

`-m slow` has `CROWD` of them, by default 1,000. Each has a session, grants and connections of its own, as so many pods
have.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from swiftlet.client.client import AsyncClient
from swiftlet.client.credentials import Token
from swiftlet.client.options import Options
from swiftlet.main.tests.direct_cluster import DirectCluster
from swiftlet.main.tests.test_direct_way import make_container

POOL_BYTES = 4 << 20
"""Memory for guests' bodies: less than a few of them send at a time."""
CONTAINER = "crowd"
CROWD = int(os.environ.get("CROWD", "1000"))
AT_ONCE = 100
"""Clients that begin at a time: the metadata server has one process here."""


def data_of(number: int) -> bytes:
    """Return what a client stores: every twentieth has more than goes in one frame."""
    return number.to_bytes(4, "big") * (500_000 if number % 20 == 0 else 2_500)


@pytest.mark.parametrize(
    ("clients", "room"),
    [(40, 30), pytest.param(CROWD, CROWD * 7 // 10, marks=[pytest.mark.slow, pytest.mark.timeout(600)])],
)
async def test_all_are_served_whether_there_is_room_for_them_or_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, clients: int, room: int
) -> None:
    limits = {"guest_connections": room, "guest_pool_bytes": POOL_BYTES}
    with DirectCluster(tmp_path, objects=limits).in_thread() as cluster:
        cluster.wait(make_container(cluster, CONTAINER))
        cluster.requests.clear()
        begin = asyncio.Semaphore(AT_ONCE)
        async with AsyncExitStack() as stack:
            all_of_them = [await stack.enter_async_context(client_of(cluster)) for _ in range(clients)]

            async def use(number: int) -> None:
                client, name, data = all_of_them[number], f"o{number}", data_of(number)
                async with begin:
                    assert (await client.put(CONTAINER, name, data)).size == len(data)
                    assert (await client.get(CONTAINER, name)).data == data

            await asyncio.gather(*(use(number) for number in range(clients)))
            over_http = {line for line in cluster.requests if line.startswith(f"PUT /v1/AUTH_test/{CONTAINER}/o")}
            refused = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
            # On a busy machine connections are lost, too: then others find a place, or these don't any more.
            assert 0 < len(over_http) < clients
            assert [line for line in refused if "the server has too many connections" in line]


def client_of(cluster: DirectCluster) -> AsyncClient:
    """Return a client; all have one token, as the pods of a job have one Secret."""
    token = Token(storage_url=f"http://127.0.0.1:{cluster.proxy}/v1/AUTH_test", token=cluster.token)
    return AsyncClient(token, Options(metadata_url=cluster.url, retry_wait_s=0.01, retry_wait_most_s=0.1))
