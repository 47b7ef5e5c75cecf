"""A storage policy with `etag: xxh3` beside one with MD5, in a store with all of its processes.

What `swift` and rclone make of such ETags is in the guide (docs/guide/configure.md), as these tests see it.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import xxhash

from e2e.standalone.cluster import Cluster, rclone_environment, start_cluster
from e2e.standalone.wire import Client
from swiftlet.client import V1, Options
from swiftlet.client import Client as OurClient

POLICIES = [{"index": 0, "name": "gold", "default": True}, {"index": 1, "name": "fast", "etag": "xxh3"}]
CLIENT_WITHIN_S = 120


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    data = tmp_path_factory.mktemp("etags")
    settings = {"SWIFTLET_POLICIES": json.dumps(POLICIES)}
    running = start_cluster(data, "--policies", "gold,fast", settings=settings)
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Client:
    made = Client(cluster.endpoint, cluster.user, cluster.key)
    assert made.call("PUT", "gold").status == 201
    assert made.call("PUT", "fast", headers={"X-Storage-Policy": "fast"}).status == 201
    return made


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def shown(client: Client, container: str, name: str) -> set[str]:
    """The ETags that the ways to ask for an object give."""
    rows = client.call("GET", container, query=f"format=json&prefix={name}").json()
    answers = [client.call(method, f"{container}/{name}") for method in ("HEAD", "GET")]
    return {row["hash"] for row in rows if row["name"] == name} | {answer.headers["Etag"] for answer in answers}


@pytest.mark.parametrize("size", [0, 10_240, 3_000_000, 12_000_000])
def test_etags_of_all_sizes_and_their_copies(client: Client, size: int) -> None:
    data = random.Random(size).randbytes(size)
    xxh3 = f"xxh3-{xxhash.xxh3_128_hexdigest(data)}"
    for container, given, expected in (
        ("gold", None, md5(data)),
        ("fast", None, xxh3),
        ("fast", xxh3, xxh3),
        ("fast", md5(data), md5(data)),
    ):
        # Once more for the front, which has a grant by then.
        for name in ("o", "p"):
            headers = {"Content-Type": "a/b"} | ({} if given is None else {"ETag": given})
            answer = client.call("PUT", f"{container}/{name}", headers=headers, body=data)
            assert (answer.status, answer.headers["Etag"]) == (201, expected)
            assert shown(client, container, name) == {expected}
        copied = client.call("COPY", f"{container}/o", headers={"Destination": f"{container}/copy"})
        assert {copied.headers["Etag"]} | shown(client, container, "copy") == {expected}
    wrong = {"ETag": md5(b"other"), "Content-Type": "a/b"}
    assert client.call("PUT", "fast/o", headers=wrong, body=data).status == 422


def run(cluster: Cluster, where: Path, *command: str) -> tuple[int, str]:
    """How a program ends, and what it says."""
    login = {"ST_AUTH": cluster.auth_url, "ST_USER": cluster.user, "ST_KEY": cluster.key, "ST_AUTH_VERSION": "1"}
    config = where / "rclone.conf"
    config.touch()
    environment = {**os.environ, **login, **rclone_environment(cluster), "RCLONE_CONFIG": str(config)}
    done = subprocess.run(
        command, env=environment, cwd=where, capture_output=True, text=True, timeout=CLIENT_WITHIN_S, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.usefixtures("client")
def test_clients_that_take_every_etag_for_an_md5_say_so(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"data" * 1000)
    for container, ends, report in (("gold", 0, ""), ("fast", 1, "md5 mismatch")):
        assert_ends(run(cluster, tmp_path, "swift", "upload", container, "file"), ends, report)
    assert_ends(run(cluster, tmp_path, "swift", "upload", "--ignore-checksum", "fast", "file"), 0)
    assert_ends(run(cluster, tmp_path, "swift", "download", "fast", "file", "-o", "back"), 1, "md5sum != etag")
    assert_ends(run(cluster, tmp_path, "swift", "download", "--ignore-checksum", "fast", "file", "-o", "back"), 0)
    assert (tmp_path / "back").read_bytes() == b"data" * 1000
    assert_ends(run(cluster, tmp_path, "rclone", "copy", "file", "sw:fast/up"), 1, "Object Corrupted")
    assert_ends(run(cluster, tmp_path, "rclone", "copy", "sw:fast/file", "down"), 1, "Object Corrupted")
    assert_ends(run(cluster, tmp_path, "rclone", "--ignore-checksum", "copy", "sw:fast/file", "down"), 0)


def assert_ends(found: tuple[int, str], code: int, report: str = "") -> None:
    """It ended with `code`, and said `report`."""
    assert (found[0], report in found[1]) == (code, True), found


def test_the_client_of_this_project_verifies_both(client: Client, cluster: Cluster, tmp_path: Path) -> None:
    data = random.Random(7).randbytes(5_000_000)
    file, xxh3 = tmp_path / "file", f"xxh3-{xxhash.xxh3_128_hexdigest(data)}"
    file.write_bytes(data)
    login = V1(auth_url=cluster.auth_url, user=cluster.user, key=cluster.key)
    pieces = Options(segments_above_bytes=6_000_000, ranges_above_bytes=3_000_000, range_bytes=1_000_000)
    with (
        OurClient(login, pieces) as ours,
        OurClient(login, replace(pieces, segments_above_bytes=1_000_000)) as segments,
    ):
        for container, etag in (("gold", md5(data)), ("fast", xxh3)):
            for source in (data, file, iter([data])):
                assert ours.put(container, "verified", source, size=len(data)).etag == etag
            assert ours.get(container, "verified").data == data
            assert ours.download(container, "verified", tmp_path / "plain").is_verified
            assert segments.put(container, "segments", file).segments == 1
            assert ours.download(container, "segments", tmp_path / "large").is_verified
            assert (tmp_path / "plain").read_bytes() == (tmp_path / "large").read_bytes() == data
            assert ours.container(f"{container}_segments").policy == container
