"""The client library behind a network that cuts connections, and its command when Ctrl-C is pressed."""

from __future__ import annotations

import asyncio
import os
import pty
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from e2e.standalone.cluster import Cluster, environment
from swiftlet.client import V1, AsyncClient, Client, ConnectionFailed, NotFound, Options
from swiftlet.testing.network import Network

MIB = 1 << 20
CONTAINER = "client-faults"
OPTIONS = Options(
    segments_above_bytes=3 * MIB,
    segment_bytes=MIB,
    stream_segment_bytes=MIB,
    ranges_above_bytes=3 * MIB,
    range_bytes=MIB,
    retry_wait_s=0.001,
    hedge=False,
)


@pytest.fixture(scope="module")
def login(cluster: Cluster) -> V1:
    return V1(auth_url=cluster.auth_url, user=cluster.user, key=cluster.key)


@pytest.fixture(scope="module")
def store(login: V1) -> Iterator[Client]:
    with Client(login, OPTIONS) as made:
        made.create_container(CONTAINER)
        made.create_container(f"{CONTAINER}_segments")
        yield made


@pytest.fixture
def network(cluster: Cluster) -> Network:
    return Network(urlsplit(cluster.endpoint).port or 0)


@pytest.fixture
async def client(network: Network, login: V1, store: Client) -> AsyncIterator[AsyncClient]:
    """A client whose requests go through the network."""
    server = await asyncio.start_server(network.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    path = urlsplit(await asyncio.to_thread(store.storage_url)).path
    async with AsyncClient(replace(login, storage_url=f"http://127.0.0.1:{port}{path}"), OPTIONS) as made:
        yield made
    server.close()
    await network.end()


def data(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


async def test_a_download_goes_on_where_it_was_cut(client: AsyncClient, network: Network, store: Client) -> None:
    content = data(2 * MIB)
    await asyncio.to_thread(store.put, CONTAINER, "read", content)
    network.downwards.extend([100_000, 0, 1_000_000])
    assert (await client.get(CONTAINER, "read")).data == content
    assert network.cuts >= 2


async def test_a_large_download_goes_on(client: AsyncClient, network: Network, store: Client, tmp_path: Path) -> None:
    content = data(6 * MIB)
    await asyncio.to_thread(store.put, CONTAINER, "large", content)
    network.downwards.extend([300_000] * 6)
    moved: list[int] = []
    done = await client.download(CONTAINER, "large", tmp_path / "file", progress=lambda at, _: moved.append(at))
    assert ((tmp_path / "file").read_bytes(), done.is_verified, moved[-1]) == (content, True, len(content))
    assert network.cuts >= 3


async def test_uploads_are_repeated(client: AsyncClient, network: Network, store: Client, tmp_path: Path) -> None:
    content = data(6 * MIB, 2)
    (tmp_path / "file").write_bytes(content)
    network.upwards.extend([300_000] * 3)
    await client.put(CONTAINER, "plain", content[: 2 * MIB])
    network.upwards.extend([300_000] * 5)
    written = await client.put(CONTAINER, "segments", tmp_path / "file")
    assert written.segments == 6
    assert network.cuts >= 5
    assert (await asyncio.to_thread(store.get, CONTAINER, "plain")).data == content[: 2 * MIB]
    assert (await asyncio.to_thread(store.get, CONTAINER, "segments")).data == content


async def test_a_store_that_is_away_is_given_up(
    client: AsyncClient, network: Network, store: Client, tmp_path: Path
) -> None:
    await asyncio.to_thread(store.put, CONTAINER, "away", data(4 * MIB))
    network.downwards.extend([10_000] * 100)
    with pytest.raises(ConnectionFailed):
        await client.download(CONTAINER, "away", tmp_path / "file")
    assert await asyncio.to_thread(os.listdir, tmp_path) == []
    network.downwards.clear()
    network.upwards.extend([10_000] * 100)
    with pytest.raises(ConnectionFailed):
        await client.put(CONTAINER, "given-up", data(2 * MIB))
    with pytest.raises(NotFound):
        await asyncio.to_thread(store.head, CONTAINER, "given-up")


def test_ctrl_c_leaves_nothing(store: Client, cluster: Cluster) -> None:
    login = {"ST_AUTH": cluster.auth_url, "ST_USER": cluster.user, "ST_KEY": cluster.key}
    # A run of the tests in the background of a shell ignores the signal, and so would what it starts.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{heard}; from swiftlet.client.commands.main import main; main()"
    command = [sys.executable, "-c", program, "cp", "-", f"swift://{CONTAINER}/interrupted"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**environment(), **login},
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        # More than the client holds in memory: it has begun to store segments.
        process.stdin.write(bytes(60 * MIB))
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        # Standard input is still open.
        assert process.wait(60) == 130
        assert process.stderr.read().strip() == b""
    names = [entry.name for entry in store.list(f"{CONTAINER}_segments", "interrupted/")]
    assert names == []
    with pytest.raises(NotFound):
        store.head(CONTAINER, "interrupted")


def test_progress_is_shown_on_a_terminal_only(store: Client, cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(2 * MIB))
    login = {"ST_AUTH": cluster.auth_url, "ST_USER": cluster.user, "ST_KEY": cluster.key}
    program = "from swiftlet.client.commands.main import main; main()"
    command = [sys.executable, "-c", program, "cp", str(tmp_path / "file"), f"swift://{CONTAINER}/progress"]
    main, side = pty.openpty()
    done = subprocess.run(command, stderr=side, stdout=subprocess.PIPE, env={**environment(), **login}, timeout=120)
    os.close(side)
    shown = os.read(main, 65536).decode()
    os.close(main)
    assert (done.returncode, done.stdout) == (0, b"")
    assert "2.0 MiB" in shown
    assert shown.endswith("\r\x1b[K")
    quiet = subprocess.run(command, capture_output=True, env={**environment(), **login}, timeout=120)
    assert (quiet.returncode, quiet.stderr) == (0, b"")


OPEN_AT_THE_END = """
import os, sys
from swiftlet.client import Client
store = Client()
store.put("client-faults", "open", b"1")
if os.fork() == 0:
    print(store.get("client-faults", "open").data, flush=True)
    sys.exit(0)
os.wait()
print(store.get("client-faults", "open").data)
"""


def test_a_program_that_forks_and_closes_nothing_ends_quietly(store: Client, cluster: Cluster) -> None:
    login = {"ST_AUTH": cluster.auth_url, "ST_USER": cluster.user, "ST_KEY": cluster.key}
    command = [sys.executable, "-W", "always", "-c", OPEN_AT_THE_END]
    done = subprocess.run(command, capture_output=True, env={**environment(), **login}, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"b'1'\n" * 2, b"")
