"""A proxy that is asked to end while clients use it: every request has its answer, and no connection is reset."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.standalone import cluster as stores
from e2e.standalone.cluster import Cluster
from e2e.standalone.polite_clients import Fleet, clients

IDLE_S = 1.5
ROUNDS = 1
"""Each has all kinds of clients; `E2E_ROUNDS` asks for more of them."""
_OBJECTS = 4


@contextmanager
def second_proxy(store: Cluster, log: Path, **settings: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Another proxy of the store, ready, and its port."""
    port, management_port = stores.free_port(), stores.free_port()
    chosen = {
        "SWIFTLET_PROXY__PORT": str(port),
        "SWIFTLET_PROXY__MANAGEMENT_PORT": str(management_port),
        "SWIFTLET_PROXY__IDLE_DRAIN_S": str(IDLE_S),
        **settings,
    }
    command = [*store.services["proxy"]["command"], *stores.end_with_us()]
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env={**stores.environment(), **chosen})
    try:
        deadline = time.monotonic() + stores.START_WITHIN_S
        while not stores.is_ready(f"http://127.0.0.1:{port}"):
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.05)
        yield process, port
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def prepared(store: Cluster) -> tuple[str, dict[str, str]]:
    """The path of a container with objects, and a token for it."""
    asked = urllib.request.Request(store.auth_url, headers={"X-Auth-User": store.user, "X-Auth-Key": store.key})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        token, url = str(answer.headers["X-Auth-Token"]), str(answer.headers["X-Storage-Url"])
    headers = {"X-Auth-Token": token}
    for path, body in [("", b""), *((f"/o{number}", b"some data") for number in range(_OBJECTS))]:
        put = urllib.request.Request(f"{url}/ending{path}", data=body, method="PUT", headers=headers)
        urllib.request.urlopen(put, timeout=30).close()
    return "/" + url.partition("://")[2].partition("/")[2] + "/ending", headers


async def one_round(store: Cluster, log: Path, path: str, headers: dict[str, str], front: str) -> Fleet:
    """Clients on a proxy that ends, while another one is there."""
    own = int(store.endpoint.rpartition(":")[2].partition("/")[0])
    with second_proxy(store, log, SWIFTLET_PROXY__FRONT=front, SWIFTLET_PROXY__FRONT_PUT=front) as (process, port):
        fleet = Fleet([own], path, headers)
        at_work = clients(fleet, port, _OBJECTS)
        kinds = {"busy", "quick", "slow", "pipelining", "uploading", "resting"}
        await _until(lambda: kinds <= fleet.done.keys() or bool(fleet.wrong))
        await asyncio.sleep(0.5)  # The native front has to have its grants.
        process.send_signal(signal.SIGTERM)
        await _until(lambda: process.poll() is not None)
        fleet.stopped.set()
        await asyncio.gather(*at_work)
        assert process.returncode == 0
        return fleet


async def _until(condition: object) -> None:
    async with asyncio.timeout(60):
        while not condition():  # type: ignore[operator]  # noqa: ASYNC110 - a process makes it true
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("front", ["true", "false"])
def test_no_client_notices_that_a_proxy_ends(own_cluster: Cluster, tmp_path: Path, front: str) -> None:
    path, headers = prepared(own_cluster)
    for number in range(int(os.environ.get("E2E_ROUNDS", ROUNDS))):
        log = tmp_path / f"proxy{number}.log"
        fleet = asyncio.run(one_round(own_cluster, log, path, headers, front))
        assert not fleet.wrong, f"round {number}: {fleet.wrong}; {log.read_text()[-3000:]}"
        # Each client but those that rest was told, and went on elsewhere.
        assert fleet.done["last"] >= 5 * _OBJECTS, fleet.done
