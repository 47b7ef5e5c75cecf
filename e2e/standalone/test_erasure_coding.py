"""A store with a policy of 4+2 beside one with copies, with all of its processes: what clients do with other objects
they do with coded ones, and with two devices away these are read, written and deleted. While processes are killed and
devices wiped no read shows anything that the acknowledged writes do not allow, nor pieces of two writes, and afterwards
everything is whole again, by proof.

`SEED` chooses what is killed, `KILLS` how many processes are at least (`make fragment-kills`).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path as Directory
from urllib.parse import urlsplit

import pytest
from swiftclient.client import Connection
from swiftclient.exceptions import ClientException
from swiftclient.utils import generate_temp_url

from e2e.standalone import coded_kills as kills
from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.packed_model import PackedModel, Small
from e2e.standalone.wire import Client
from swiftlet.main.commands.standalone.plan import Layout

SMALL, LARGE = 10_000, 3_000_000
"""Bytes of objects in less than a stripe, and in many, which are streamed and have files of their own."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = start_cluster(
        tmp_path_factory.mktemp("coded"), "--policies", f"usual,{kills.POLICY}=4+2", settings=kills.SETTINGS
    )
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Client:
    made = Client(cluster.endpoint, cluster.user, cluster.key)
    for name, headers in (("c", {"X-Storage-Policy": "coded"}), ("usual", {})):
        assert made.call("PUT", name, headers).status == 201
    return made


@pytest.fixture
def swift(cluster: Cluster) -> Iterator[Connection]:
    connection = Connection(authurl=cluster.auth_url, user=cluster.user, key=cluster.key, retries=0)
    yield connection
    connection.close()


def body_of(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


@pytest.mark.parametrize("size", [0, 1, SMALL, LARGE])
def test_an_objects_life(client: Client, size: int) -> None:
    body, name = body_of(size), f"c/life-{size}"
    put = client.call("PUT", name, {"X-Object-Meta-Color": "blue", "Content-Type": "a/b"}, body)
    assert (put.status, put.headers["Etag"]) == (201, md5(body))
    for method in ("GET", "HEAD"):
        got = client.call(method, name)
        told = [got.headers[header] for header in ("Etag", "Content-Length", "Content-Type", "X-Object-Meta-Color")]
        assert (got.status, told) == (200, [md5(body), str(size), "a/b", "blue"])
        assert got.body == (body if method == "GET" else b"")
    if size:
        part = client.call("GET", name, {"Range": f"bytes={size // 3}-{size // 2}"})
        assert (part.status, part.body) == (206, body[size // 3 : size // 2 + 1])
    rows = client.call("GET", "c", query=f"format=json&prefix=life-{size}").json()
    row = next(row for row in rows if row["name"] == f"life-{size}")
    assert (row["bytes"], row["hash"], row["content_type"]) == (size, md5(body), "a/b")
    assert client.call("DELETE", name).status == 204
    assert client.call("GET", name).status == 404
    assert f"life-{size}" not in client.call("GET", "c").body.decode().splitlines()


def test_large_objects_have_coded_segments(swift: Connection, client: Client) -> None:
    parts = [body_of(size) for size in (LARGE, SMALL, 7)]
    for number, part in enumerate(parts):
        swift.put_object("c", f"parts/{number}", part)
    manifest = [{"path": f"c/parts/{number}", "size_bytes": len(part)} for number, part in enumerate(parts)]
    swift.put_object("c", "static", json.dumps(manifest), query_string="multipart-manifest=put")
    swift.put_object("c", "dynamic", b"", headers={"X-Object-Manifest": "c/parts/"})
    whole = b"".join(parts)
    for name in ("static", "dynamic"):
        assert swift.get_object("c", name)[1] == whole
        ranged = client.call("GET", f"c/{name}", {"Range": f"bytes={LARGE - 10}-{LARGE + 9}"})
        assert (ranged.status, ranged.body) == (206, whole[LARGE - 10 : LARGE + 10])
    assert client.call("DELETE", "c/static", query="multipart-manifest=delete").status == 200
    assert client.call("GET", "c/parts/0").status == 404


def test_copies_go_from_copies_to_fragments_and_back(client: Client) -> None:
    body = body_of(LARGE)
    assert client.call("PUT", "usual/o", {"X-Object-Meta-Color": "blue"}, body).status == 201
    for source, target in (("usual/o", "c/copied"), ("c/copied", "c/again"), ("c/again", "usual/back")):
        assert client.call("COPY", source, {"Destination": target}).status == 201
        got = client.call("GET", target)
        assert (got.status, got.body == body, got.headers["X-Object-Meta-Color"]) == (200, True, "blue")


def test_versions(swift: Connection) -> None:
    swift.put_container("versioned", headers={"X-Storage-Policy": "coded", "X-Versions-Enabled": "true"})
    bodies = [body_of(SMALL), body_of(LARGE), b"last"]
    ids = []
    for body in bodies:
        answer: dict[str, dict[str, str]] = {}
        swift.put_object("versioned", "o", body, response_dict=answer)
        ids.append(answer["headers"]["x-object-version-id"])
    for version, body in zip(ids, bodies, strict=True):
        assert swift.get_object("versioned", "o", query_string=f"version-id={version}")[1] == body
    swift.delete_object("versioned", "o")
    with pytest.raises(ClientException):
        swift.get_object("versioned", "o")
    swift.put_object("versioned", "o", b"", query_string=f"version-id={ids[1]}")
    assert swift.get_object("versioned", "o")[1] == bodies[1]


def test_temporary_addresses(swift: Connection, client: Client) -> None:
    swift.post_account({"X-Account-Meta-Temp-URL-Key": "secret"})
    path = urlsplit(swift.get_auth()[0]).path + "/c/shared"
    addresses = {method: generate_temp_url(path, 600, "secret", method) for method in ("PUT", "GET")}
    body = body_of(SMALL)
    assert client.plain("PUT", addresses["PUT"], body=body).status == 201
    got = client.plain("GET", addresses["GET"])
    assert (got.status, got.body) == (200, body)


def test_what_expires_is_gone(client: Client) -> None:
    assert client.call("PUT", "c/long", {"X-Delete-After": "3600"}, body_of(SMALL)).status == 201
    assert client.call("HEAD", "c/long").headers["X-Delete-At"]
    assert client.call("PUT", "c/short", {"X-Delete-After": "1"}, body_of(SMALL)).status == 201
    deadline = time.monotonic() + 30
    while client.call("GET", "c/short").status != 404:
        assert time.monotonic() < deadline


def test_half_again_the_bytes_are_stored(client: Client, cluster: Cluster) -> None:
    def stored() -> int:
        files = Layout(cluster.data).devices.glob("d*/**/*")
        return sum(file.stat().st_size for file in files if file.is_file() and "large" in file.parts)

    before = stored()
    assert client.call("PUT", "c/measured", body=body_of(8 * LARGE)).status == 201
    deadline = time.monotonic() + 30
    # The last of the devices may still be writing when so many others have made it durable that it is acknowledged.
    while stored() - before < 1.49 * 8 * LARGE:
        assert time.monotonic() < deadline
    assert (stored() - before) / (8 * LARGE) < 1.53


def test_a_fragment_that_rots_is_found_by_the_auditor_and_made_anew(client: Client, cluster: Cluster) -> None:
    # No other test stores an object of this size, so its fragments are known by theirs.
    body, fragment_bytes = body_of(8 * LARGE + 8), 2 * LARGE + 2
    assert client.call("PUT", "c/rots", body=body).status == 201
    devices = Layout(cluster.data).devices

    def fragments() -> list[Directory]:
        return [
            file
            for file in sorted(devices.glob("d*/large/**/*"))
            if file.is_file() and file.stat().st_size == fragment_bytes
        ]

    # A device that was slow may have been left out of the write, and gets its fragment by a repair.
    deadline = time.monotonic() + 60
    while len(fragments()) < 6:
        assert time.monotonic() < deadline, "the devices do not get their fragments"
        time.sleep(0.1)
    # What is still written when so many others have it that the write is acknowledged is whole when the server ends.
    kills.wait_until_whole(cluster, time.time() - 1)
    # Names of objects are hashed with a secret: which six of the seven devices have fragments differs from run to run.
    fragment = fragments()[0]
    device = devices / fragment.relative_to(devices).parts[0]
    server = f"object-{device.name.removeprefix('d')}"
    # The auditor begins when its server does, and then once an hour.
    cluster.kill(server)
    before = fragment.read_bytes()
    with fragment.open("r+b") as opened:
        opened.seek(LARGE)
        opened.write(bytes([before[LARGE] ^ 1]))
    cluster.start(server)
    began_s, deadline = time.time(), time.monotonic() + 60
    # The file is another one: the damaged one was put aside.
    while not any(file.is_file() and file.read_bytes() == before for file in device.glob("large/**/*")):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    kills.wait_until_whole(cluster, began_s)
    assert client.call("GET", "c/rots").body == body


def listed(client: Client, container: str) -> dict[str, int]:
    """Sizes of objects by a container's listing."""
    return {row["name"]: row["bytes"] for row in client.call("GET", container, query="format=json").json()}


def test_two_devices_away(client: Client, cluster: Cluster) -> None:
    before = {f"kept-{size}": body_of(size) for size in (SMALL, LARGE)}
    for name, body in before.items():
        assert client.call("PUT", f"c/{name}", body=body).status == 201
    cluster.kill("object-2", "object-5")
    for name, body in before.items():
        assert client.call("GET", f"c/{name}").body == body
        part = client.call("GET", f"c/{name}", {"Range": "bytes=1000-8999"})
        assert (part.status, part.body) == (206, body[1000:9000])
    for size in (SMALL, LARGE):
        assert client.call("PUT", f"c/new-{size}", body=body_of(size)).status == 201
        assert client.call("GET", f"c/new-{size}").body == body_of(size)
    assert client.call("DELETE", f"c/kept-{SMALL}").status == 204
    assert client.call("GET", f"c/kept-{SMALL}").status == 404
    cluster.start("object-2", "object-5")
    assert client.call("GET", f"c/new-{LARGE}").body == body_of(LARGE)
    assert client.call("GET", f"c/kept-{SMALL}").status == 404


def test_a_round_by_hand(client: Client, cluster: Cluster) -> None:
    assert client.call("PUT", "c/by-hand", body=body_of(LARGE)).status == 201
    done = kills.run_by_hand(cluster, "--policy", "coded")
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["compared"] == report["repairs"]["failed"] == report["repairs"]["unchecked"] == 0
    assert report["repairs"]["compared"] > 0
    refused = kills.run_by_hand(cluster, "--policy", "coded", "--node", "z1")
    assert refused.returncode != 0
    assert "coded has erasure coding, whose places are compared with all others" in refused.stderr


@pytest.mark.timeout(300 + 15 * kills.KILLS)
def test_nothing_acknowledged_is_lost_by_kills_and_nothing_abandoned_stays(client: Client, cluster: Cluster) -> None:
    print(f"SEED={kills.SEED} KILLS={kills.KILLS}")
    assert client.call("PUT", kills.CONTAINER, {"X-Storage-Policy": "coded"}).status == 201
    chooser, begun = random.Random(kills.SEED), time.monotonic()
    model = PackedModel([Small(f"o{number}") for number in range(24)])
    others = len(kills.large_files(cluster))
    killed = kills.disturb(cluster, client, model, chooser)
    assert model.wrong == [], f"SEED={kills.SEED}: {len(model.wrong)} answers are wrong: {model.wrong[:5]}"
    quiet_s, loaded_s = time.time(), time.monotonic() - begun
    # What is younger than 10 s is not compared; what is undecided is decided after 10 s.
    kills.wait_until_whole(cluster, quiet_s + kills.YOUNG_S)
    whole_s = time.time() - quiet_s
    found = kills.assert_read(client, model)
    redundancy = kills.report_of(cluster)["repairs"]["redundancy"]["coded"]
    assert {name for name, count in redundancy["partitions"].items() if count} == {"6"}
    assert set(redundancy["objects"].values()) == {0}
    pairs = list(itertools.combinations(kills.SERVERS, 2))
    for away in chooser.sample(pairs, 1 if kills.KILLS < 100 else 8):
        cluster.kill(*away)
        assert kills.assert_read(client, model) == found, away
        cluster.start(*away)
    deadline = time.monotonic() + 60
    while listed(client, kills.CONTAINER) != found:
        assert time.monotonic() < deadline, (listed(client, kills.CONTAINER), found)
    large = sum(size > 4 * kills.LARGE_BYTES for size in found.values())
    assert len(kills.large_files(cluster)) - others == 6 * large
    for name in found:
        assert client.call("DELETE", f"{kills.CONTAINER}/{name}").status == 204
    deadline = time.monotonic() + 60
    while len(kills.large_files(cluster)) > others:
        assert time.monotonic() < deadline
    print(
        f"{loaded_s:.0f} s: killed {dict(killed)}; whole again by proof after {whole_s:.0f} s; {len(found)} objects, "
        f"{large} of them large; answers {dict(sorted(model.counts.items()))}"
    )
