"""Servers keep sealed copies of the keys on their devices and hand them out, also while they wait for keys."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from swiftlet.main.awaited_keys import waiting_app
from swiftlet.main.needed_keys import device_roots, reason_to_wait
from swiftlet.main.services import container, object
from swiftlet.servers.shared.sealed_keys import DIRECTORY, SealedCopy, keep_copy, read_copies
from swiftlet.settings import ContainerSettings, ObjectSettings
from swiftlet.settings.secret import suffix_id
from swiftlet.testing.ports import object_ports
from swiftlet.web.serve import StopRequest
from swiftlet.web.tests.conftest import eventually

SUFFIX = b"the suffix of the tests"
OTHER = b"another suffix"
AGE = b"age-encryption.org/v1\n"
LIMIT_S = 60.0


def copy(generation: int, suffix: bytes = SUFFIX) -> SealedCopy:
    return SealedCopy(suffix_id(suffix), generation, AGE + b"%d" % generation)


def offer(tmp_path: Path, one: SealedCopy) -> None:
    """Show a copy as a ConfigMap does: by links."""
    data = tmp_path / "sealed" / f"..data-{one.generation}"
    data.mkdir(parents=True)
    (data / one.name).write_bytes(one.content)
    for old in (tmp_path / "sealed").glob("*.age"):
        old.unlink()
    (tmp_path / "sealed" / one.name).symlink_to(data / one.name)


def put_keys(tmp_path: Path, suffix: bytes = SUFFIX) -> None:
    """Have the files that the Secret has."""
    (tmp_path / "keys").mkdir(exist_ok=True)
    for name, content in (("cluster-key", b"k" * 32), ("hash-path-suffix", suffix)):
        (tmp_path / "keys" / "aside").write_bytes(content)
        os.replace(tmp_path / "keys" / "aside", tmp_path / "keys" / name)


def cluster_of(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "rings").mkdir(exist_ok=True)
    return {
        "key_file": str(tmp_path / "keys" / "cluster-key"),
        "hash_path_suffix_file": str(tmp_path / "keys" / "hash-path-suffix"),
        "sealed_keys_directory": str(tmp_path / "sealed"),
        "rings": str(tmp_path / "rings"),
        "key_check_interval_s": 0.05,
    }


def object_settings(tmp_path: Path) -> ObjectSettings:
    [port] = object_ports(1)
    section = {"devices_dir": tmp_path, "devices": ["d0", "d1"], "reserve_percent": 0, "port": port}
    return ObjectSettings.model_validate({"cluster": cluster_of(tmp_path), "object": section})


def container_settings(tmp_path: Path) -> ContainerSettings:
    [port] = object_ports(1)
    section = {"devices_dir": tmp_path, "devices": ["d0", "d1"], "port": port}
    return ContainerSettings.model_validate({"cluster": cluster_of(tmp_path), "container": section})


CREATE: list[Callable[[Path], web.Application]] = [
    lambda tmp_path: object.create_app(object_settings(tmp_path)),
    lambda tmp_path: container.create_app(container_settings(tmp_path)),
]


@pytest.fixture(autouse=True)
def devices(tmp_path: Path) -> None:
    """Two devices, empty."""
    for name in ("d0", "d1"):
        (tmp_path / name).mkdir()


async def handed_out(client: TestClient[web.Request, web.Application]) -> dict[str, bytes]:
    """Names and contents of the copies that a server gives."""
    answer = await client.get("/sealed-keys")
    assert answer.status == 200
    return {name: base64.b64decode(text) for name, text in (await answer.json())["copies"].items()}


async def until(asked: Callable[[], Awaitable[Any]], wanted: Any) -> None:
    """Ask until it is what is wanted."""
    deadline = time.monotonic() + LIMIT_S
    while (found := await asked()) != wanted:
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.01)


async def reported(client: TestClient[web.Request, web.Application], **generations: int | None) -> None:
    """Wait until the status report says so of the devices."""

    async def said() -> Any:
        return (await (await client.get("/statusz")).json())["sealedKeys"]

    await until(said, generations)


@pytest.mark.parametrize("create", CREATE, ids=["object", "container"])
async def test_a_server_writes_the_newest_copy_to_all_devices_and_hands_it_out(
    tmp_path: Path, create: Callable[[Path], web.Application]
) -> None:
    put_keys(tmp_path)
    async with TestClient(TestServer(create(tmp_path))) as client:
        for generation in (1, 2):
            offer(tmp_path, copy(generation))

            def is_kept() -> bool:
                return all(
                    read_copies(tmp_path / name / DIRECTORY) == [copy(generation)]  # noqa: B023
                    for name in ("d0", "d1")
                )

            await asyncio.to_thread(eventually, is_kept)
            await reported(client, d0=generation, d1=generation)
            assert await handed_out(client) == {copy(generation).name: copy(generation).content}


@pytest.mark.parametrize("create", CREATE, ids=["object", "container"])
async def test_a_copy_of_keys_with_another_suffix_is_not_kept(
    tmp_path: Path, create: Callable[[Path], web.Application]
) -> None:
    put_keys(tmp_path)
    offer(tmp_path, copy(5, OTHER))
    keep_copy(tmp_path / "d0", copy(1))
    async with TestClient(TestServer(create(tmp_path))) as client:
        await reported(client, d0=1, d1=None)
        assert await handed_out(client) == {copy(1).name: copy(1).content}
    assert read_copies(tmp_path / "d1" / DIRECTORY) == []


async def test_keys_that_vanish_while_a_server_runs_take_nothing_away(tmp_path: Path) -> None:
    """So it is when the Secret is deleted: its optional volume becomes empty."""
    put_keys(tmp_path)
    offer(tmp_path, copy(1))
    async with TestClient(TestServer(object.create_app(object_settings(tmp_path)))) as client:
        await reported(client, d0=1, d1=1)
        for name in ("cluster-key", "hash-path-suffix"):
            (tmp_path / "keys" / name).unlink()
        offer(tmp_path, copy(2))
        await reported(client, d0=2, d1=2)
        assert (await client.get("/healthz")).status == 200


async def test_a_device_that_fails_leaves_the_other_its_copy(tmp_path: Path) -> None:
    put_keys(tmp_path)
    offer(tmp_path, copy(1))
    (tmp_path / "d0" / DIRECTORY).write_bytes(b"a file in the directory's place")
    async with TestClient(TestServer(object.create_app(object_settings(tmp_path)))) as client:
        await reported(client, d0=None, d1=1)


def test_a_server_waits_while_keys_are_missing_or_those_of_another_cluster(tmp_path: Path) -> None:
    settings = object_settings(tmp_path)
    roots = device_roots(settings)
    assert "cluster-key is not there" in reason_to_wait(settings.cluster, roots)
    put_keys(tmp_path)
    assert reason_to_wait(settings.cluster, roots) == ""
    keep_copy(tmp_path / "d1", copy(1, OTHER))
    assert "device d1 was made with another hash suffix" in reason_to_wait(settings.cluster, roots)
    keep_copy(tmp_path / "d1", copy(1))
    assert reason_to_wait(settings.cluster, roots) == ""


def test_without_the_setting_nobody_waits(tmp_path: Path) -> None:
    cluster = object_settings(tmp_path).cluster.model_copy(update={"sealed_keys_directory": None})
    assert reason_to_wait(cluster, {}) == ""


async def test_who_waits_is_alive_not_ready_and_gives_no_report(tmp_path: Path) -> None:
    keep_copy(tmp_path / "d0", copy(3))
    stop, came = StopRequest(), asyncio.Event()
    app = waiting_app(object_settings(tmp_path), stop, came)
    async with TestClient(TestServer(app)) as client:
        await until(lambda: handed_out(client), {copy(3).name: copy(3).content})
        assert (await client.get("/healthz")).status == 200
        assert (await client.get("/statusz")).status == 404
        ready = await client.get("/readyz")
        assert ready.status == 503
        assert "is not there; restore the cluster's keys" in await ready.text()
        put_keys(tmp_path)
        await asyncio.wait_for(stop.once.wait(), LIMIT_S)
        assert came.is_set()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A real object server that was started without keys."""
    [port] = object_ports(1)
    document = {"cluster": cluster_of(tmp_path), "object": {"port": port, "reserve_percent": 0}}
    document["object"] |= {"host": "127.0.0.1", "devices_dir": str(tmp_path), "devices": ["d0", "d1"]}
    (tmp_path / "settings.yaml").write_text(json.dumps(document))
    command = [sys.executable, "-m", "swiftlet.main", "object", "--config", str(tmp_path / "settings.yaml")]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*command, "--parent", str(os.getpid())], stdout=log, stderr=log)
    yield process, port
    process.kill()
    process.wait()


def asked(port: int, path: str) -> tuple[int, bytes]:
    """What a server answers, 0 when nobody does."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return 0, b""


def wait_for(process: subprocess.Popen[bytes], is_so: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def test_a_process_without_keys_hands_out_its_copy_and_serves_once_they_are_there(
    tmp_path: Path, server: tuple[subprocess.Popen[bytes], int]
) -> None:
    process, port = server
    keep_copy(tmp_path / "d1", copy(7))
    wait_for(process, lambda: copy(7).name.encode() in asked(port, "/sealed-keys")[1], tmp_path / "log")
    assert asked(port, "/statusz")[0] == 404
    assert not (tmp_path / "d0" / ".lock").exists()

    put_keys(tmp_path)
    offer(tmp_path, copy(8))
    wait_for(process, lambda: asked(port, "/statusz")[0] == 200, tmp_path / "log")
    wait_for(process, lambda: read_copies(tmp_path / "d0" / DIRECTORY) == [copy(8)], tmp_path / "log")
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT_S) == 0


def test_a_process_that_waits_ends_when_it_is_asked_to(
    tmp_path: Path, server: tuple[subprocess.Popen[bytes], int]
) -> None:
    process, port = server
    wait_for(process, lambda: asked(port, "/healthz")[0] == 200, tmp_path / "log")
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT_S) == 0
