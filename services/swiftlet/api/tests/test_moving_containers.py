"""Containers that move to another storage policy, phase by phase: what clients read, write and see."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path as Directory

import pytest

from swiftlet.api.context.container_cache import ContainerCache
from swiftlet.api.http.reserved import versions_container
from swiftlet.api.tests.proxy import POLICIES, ManualClock, Proxy, proxy_of
from swiftlet.api.tests.versions import AT_ONCE, put_version
from swiftlet.errors import NotFound, Unavailable
from swiftlet.main.routing import routed
from swiftlet.model import Kind, ObjectInfo
from swiftlet.names import Path
from swiftlet.placement.moving import Move, Moved, MovingObjects
from swiftlet.placement.tests import phases
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster, at, footer_of, record_of
from swiftlet.policy_moves import ITEM, Phase, PolicyMove
from swiftlet.settings import PolicySection
from swiftlet.settings.policies import Policies

A, B = 0, 1
PATH = Path(ACCOUNT, "c", "o")
NAMES = {A: "gold", B: "silver"}
OLD, NEW = b"old", b"newer"


@dataclass(frozen=True)
class Row:
    """A row of the table in the design note."""

    phase: Phase | None
    put: int
    read: frozenset[int]
    changed: frozenset[int]

    @property
    def policy(self) -> int:
        return self.put


BOTH = frozenset({A, B})
NONE = Row(None, A, frozenset({A}), frozenset({A}))
MOVES = [Row(Phase.ANNOUNCED, A, BOTH, BOTH), Row(Phase.MOVING, B, BOTH, BOTH), Row(Phase.SETTLED, B, BOTH, BOTH)]
TABLE = [NONE, *MOVES]
in_each_phase = pytest.mark.parametrize("row", TABLE, ids=lambda row: row.phase.value if row.phase else "none")
while_it_moves = pytest.mark.parametrize("row", MOVES, ids=lambda row: row.phase.value)


async def bring(proxy: Proxy, phase: Phase | None, container: str = "c") -> None:
    """Bring a container's databases to a phase; the proxy's cached container is forgotten."""
    await phases.bring(proxy.cluster, phase, container)
    proxy.api.containers.forget(ACCOUNT, container)


async def store(proxy: Proxy, policy: int, second: float, body: bytes, path: Path = PATH) -> None:
    """Store an object in one policy, whatever the container's state."""
    await proxy.cluster.objects.put(path, policy, record_of(path, at(second)), body, footer_of(body))


async def held(proxy: Proxy, policy: int, path: Path = PATH) -> ObjectInfo | None:
    """What one policy has."""
    try:
        return await proxy.cluster.objects.head(path, policy, newest=True)
    except NotFound:
        return None


async def got(proxy: Proxy, path: str = "c/o") -> tuple[int, bytes]:
    answer = await proxy.call("GET", path)
    assert (await proxy.call("HEAD", path)).status == answer.status
    return answer.status, answer.body if answer.status == 200 else b""


@pytest.fixture(params=[False, True], ids=["python", "front"])
async def proxy(cluster: MemoryCluster, tmp_path: Directory, request: pytest.FixtureRequest) -> AsyncIterator[Proxy]:
    """What is read is read again through the native front where there is one."""
    async with proxy_of(cluster, tmp_path, versioning=AT_ONCE, through_front=request.param) as made:
        yield made


@in_each_phase
async def test_puts_go_to_the_policy_of_the_phase(proxy: Proxy, row: Row) -> None:
    await bring(proxy, row.phase)
    for number, body in enumerate((b"small", b"large" * 1000)):
        path = Path(ACCOUNT, "c", f"o{number}")
        assert (await proxy.call("PUT", f"c/o{number}", data=body)).status == 201
        assert {policy for policy in (A, B) if await held(proxy, policy, path)} == {row.put}
        assert await got(proxy, f"c/o{number}") == (200, body)


@in_each_phase
@pytest.mark.parametrize("policy", [A, B])
async def test_reads_find_what_is_in_the_policies_of_the_phase(proxy: Proxy, row: Row, policy: int) -> None:
    await bring(proxy, row.phase)
    await store(proxy, policy, 600, OLD)
    assert await got(proxy) == ((200, OLD) if policy in row.read else (404, b""))


@while_it_moves
@pytest.mark.parametrize("newer", [A, B])
async def test_the_newest_counts_and_in_settled_that_of_the_target(proxy: Proxy, row: Row, newer: int) -> None:
    await bring(proxy, row.phase)
    await store(proxy, 1 - newer, 600, OLD)
    await store(proxy, newer, 601, NEW)
    settled = row.phase is Phase.SETTLED
    assert await got(proxy) == (200, OLD if settled and newer == A else NEW)


@while_it_moves
async def test_what_settled_finds_in_the_source_beats_no_deletion(proxy: Proxy, row: Row) -> None:
    await bring(proxy, row.phase)
    await store(proxy, A, 600, OLD)
    await proxy.cluster.objects.delete(PATH, B, at(601))
    assert await got(proxy) == (404, b"")


@in_each_phase
@pytest.mark.parametrize("policy", [A, B])
async def test_deletions_are_in_both_policies(proxy: Proxy, row: Row, policy: int) -> None:
    await bring(proxy, row.phase)
    await store(proxy, policy, 600, OLD)
    assert (await proxy.call("DELETE", "c/o")).status == (204 if policy in row.changed else 404)
    for one in (A, B):
        key = proxy.cluster.objects.key(PATH, one)
        kinds = {
            entry and entry.kind for entry in (proxy.cluster.entry(device, key) for device in proxy.cluster.primaries())
        }
        assert (kinds == {Kind.TOMBSTONE}) == (one in row.changed)


@in_each_phase
@pytest.mark.parametrize("policy", [A, B])
async def test_a_post_reaches_the_object_wherever_it_is(proxy: Proxy, row: Row, policy: int) -> None:
    await bring(proxy, row.phase)
    await store(proxy, policy, 600, OLD)
    there = policy in row.changed
    assert (await proxy.call("POST", "c/o", {"X-Object-Meta-Color": "red"})).status == (202 if there else 404)
    answer = await proxy.call("HEAD", "c/o")
    assert answer.headers.get("X-Object-Meta-Color") == ("red" if there else None)


@while_it_moves
async def test_a_put_is_newer_than_what_either_policy_has(proxy: Proxy, row: Row) -> None:
    await bring(proxy, row.phase)
    for policy in (A, B):
        # Another proxy's clock is ahead.
        await store(proxy, policy, 1001 + policy, OLD)
        assert (await proxy.call("PUT", "c/o", data=NEW)).status == 201
        assert await got(proxy) == (200, NEW)


@in_each_phase
async def test_the_containers_policy_is_that_of_new_objects(proxy: Proxy, row: Row) -> None:
    await proxy.call("PUT", "c/o", data=OLD)
    await bring(proxy, row.phase)
    name = NAMES[row.policy]
    assert (await proxy.call("HEAD", "c")).headers["X-Storage-Policy"] == name
    assert (await proxy.call("GET", "c")).headers["X-Storage-Policy"] == name
    assert (await proxy.call("PUT", "c", {"X-Storage-Policy": name})).status == 202
    assert (await proxy.call("PUT", "c", {"X-Storage-Policy": NAMES[1 - row.policy]})).status == 409
    assert (await proxy.call("PUT", "c")).status == 202
    assert (await proxy.call("HEAD", "c")).headers["X-Storage-Policy"] == name


async def test_clients_neither_set_nor_see_the_state(proxy: Proxy) -> None:
    move = PolicyMove(A, B, Phase.ANNOUNCED, at(500), at(1))
    for method in ("PUT", "POST"):
        for name in (ITEM, ITEM.lower(), ITEM.replace("-", "_")):
            await proxy.call(method, "c", {name: move.text()})
    assert (await proxy.cluster.listings.container_info(ACCOUNT, "c")).move is None
    assert (await proxy.call("PUT", "new", {ITEM: move.text()})).status == 201
    assert (await proxy.cluster.listings.container_info(ACCOUNT, "new")).move is None
    await bring(proxy, Phase.MOVING)
    await proxy.call("POST", "c", {"X-Remove-Container-Sysmeta-Policy-Move": "x", "X-Container-Meta-A": "b"})
    assert (await proxy.cluster.listings.container_info(ACCOUNT, "c")).move is not None
    for method in ("HEAD", "GET"):
        answer = await proxy.call(method, "c")
        assert answer.headers["X-Container-Meta-A"] == "b"
        assert not [name for name in answer.headers if "sysmeta" in name.lower()]


@while_it_moves
async def test_a_proxy_that_knows_an_earlier_phase_reads_and_writes_beside_one_that_knows_this_one(
    cluster: MemoryCluster, tmp_path: Directory, row: Row
) -> None:
    before = TABLE[TABLE.index(row) - 1]
    async with proxy_of(cluster, tmp_path) as early, proxy_of(cluster, tmp_path) as late:
        await bring(late, before.phase)
        assert (await early.call("GET", "c/none")).status == 404
        early.clock.now += 1
        await bring(late, row.phase)
        known = early.api.containers.known(ACCOUNT, "c")
        assert known is not None
        assert (known.move and known.move.phase) == before.phase
        for number, (writer, reader) in enumerate([(early, late), (late, early)] * 2):
            body = b"%d" % number
            writer.clock.now = max(writer.clock.now, reader.clock.now) + 1
            reader.clock.now = writer.clock.now + 1
            assert (await writer.call("PUT", "c/o", data=body)).status == 201
            assert await got(reader) == (200, body)
            assert (await reader.call("POST", "c/o", {"X-Object-Meta-N": str(number)})).status == 202
            assert (await writer.call("HEAD", "c/o")).headers["X-Object-Meta-N"] == str(number)
            assert (await reader.call("DELETE", "c/o")).status == 204
            assert await got(writer) == (404, b"")


async def test_what_a_proxy_knows_of_a_container_ends_when_nobody_can_be_asked(
    cluster: MemoryCluster, tmp_path: Directory
) -> None:
    now = ManualClock(100.0)
    known = ContainerCache(cluster.listings.container_facts, cluster.listings.container_info, 10.0, clock=now)
    async with proxy_of(cluster, tmp_path) as proxy:
        objects = routed(cluster.objects, known, POLICIES)
        await store(proxy, A, 600, OLD)
        assert (await objects.head(PATH, A)).size == len(OLD)
        with cluster.databases_down(*cluster.devices):
            now.now += 9.0
            assert (await objects.head(PATH, A)).size == len(OLD)
            now.now += 1.0
            with pytest.raises(Unavailable):
                await objects.head(PATH, A)
            with pytest.raises(Unavailable):
                await objects.delete(PATH, A, at(700))


@while_it_moves
async def test_replicas_of_the_database_in_different_phases(proxy: Proxy, row: Row) -> None:
    before = TABLE[TABLE.index(row) - 1]
    behind, *others = proxy.cluster.container_devices()
    await bring(proxy, before.phase)
    with proxy.cluster.databases_down(behind):
        move = PolicyMove(A, B, row.phase or Phase.ANNOUNCED, at(510), at(1))
        await proxy.cluster.listings.post_container(ACCOUNT, "c", at(510), {ITEM: move.text()})
    phases = set()
    for number in range(6):
        body = b"%d" % number
        with proxy.cluster.databases_down(*(others if number % 2 else [behind])):
            proxy.api.containers.forget(ACCOUNT, "c")
            known = await proxy.api.containers.get(ACCOUNT, "c")
            phases.add(known.move and known.move.phase)
        assert (await proxy.call("PUT", "c/o", data=body)).status == 201
        assert await got(proxy) == (200, body)
    assert phases == {before.phase, row.phase}


@while_it_moves
@pytest.mark.usefixtures("with_and_without_runs")
async def test_segments_of_large_objects_are_read_from_both_policies(proxy: Proxy, row: Row) -> None:
    await proxy.call("PUT", "large")
    for number in range(6):
        await proxy.call("PUT", f"c/s{number}", data=b"%d" % number * 10)
    segments = [{"path": f"/c/s{number}"} for number in range(6)]
    made = await proxy.call("PUT", "large/o", data=json.dumps(segments), query="multipart-manifest=put")
    assert made.status == 201
    whole = b"".join(b"%d" % number * 10 for number in range(6))
    await bring(proxy, row.phase)

    async def no_pace(_size: int) -> None:
        return None

    moving = MovingObjects(proxy.cluster.objects, Move(A, B, B))
    for number in (1, 2, 4):
        assert await moving.move(Path(ACCOUNT, "c", f"s{number}"), no_pace) is Moved.MOVED
        assert await got(proxy, "large/o") == (200, whole)


@while_it_moves
async def test_versions_links_and_copies_are_read_and_written_wherever_they_are(proxy: Proxy, row: Row) -> None:
    await proxy.call("POST", "c", {"X-Versions-Enabled": "true"})
    first = await put_version(proxy, b"1")
    await bring(proxy, row.phase)
    await bring(proxy, row.phase, versions_container("c"))
    second = await put_version(proxy, b"2")
    assert await got(proxy) == (200, b"2")
    for version, body in ((first, b"1"), (second, b"2")):
        assert (await proxy.call("GET", "c/o", query=f"version-id={version}")).body == body
    assert (await proxy.call("PUT", "c/o", query=f"version-id={first}")).status == 201
    assert await got(proxy) == (200, b"1")
    assert (await proxy.call("DELETE", "c/o")).status == 204
    assert await got(proxy) == (404, b"")
    await proxy.call("PUT", "d")
    assert (await proxy.call("PUT", "d/link", {"X-Symlink-Target": "c/o"})).status == 201
    await proxy.call("PUT", "c/o", data=b"3")
    assert await got(proxy, "d/link") == (200, b"3")
    assert (await proxy.call("PUT", "d/copy", {"X-Copy-From": "c/o"})).status == 201
    assert (await proxy.call("PUT", "c/copy", {"X-Copy-From": "d/copy"})).status == 201
    assert await got(proxy, "c/copy") == (200, b"3")
    assert (await proxy.call("PUT", "c/o", {"If-None-Match": "*"}, data=b"4")).status == 412


@in_each_phase
async def test_quotas_count_objects_wherever_they_are(proxy: Proxy, row: Row) -> None:
    limits = {"X-Container-Meta-Quota-Count": "3", "X-Container-Meta-Quota-Bytes": "30"}
    assert (await proxy.call("POST", "c", limits)).status == 204
    for name in ("o", "p"):
        assert (await proxy.call("PUT", f"c/{name}", data=b"0123456789")).status == 201
    await bring(proxy, row.phase)

    async def no_pace(_size: int) -> None:
        return None

    if row.phase not in (None, Phase.ANNOUNCED):
        assert await MovingObjects(proxy.cluster.objects, Move(A, B, B)).move(PATH, no_pace) is Moved.MOVED
    proxy.api.containers.forget(ACCOUNT, "c")
    head = await proxy.call("HEAD", "c")
    assert [head.headers[f"X-Container-{what}"] for what in ("Object-Count", "Bytes-Used")] == ["2", "20"]
    for name, size, status in [("q", 11, 413), ("q", 10, 201), ("r", 0, 413)]:
        assert (await proxy.call("PUT", f"c/{name}", data=b"1" * size)).status == status


async def test_a_settled_move_out_of_a_retired_policy_counts_as_none(
    cluster: MemoryCluster, tmp_path: Directory
) -> None:
    silver = PolicySection(index=B, name="silver", default=True)
    async with proxy_of(cluster, tmp_path, policies=Policies([silver])) as proxy:
        await bring(proxy, Phase.SETTLED)
        await store(proxy, A, 600, OLD)
        assert await got(proxy) == (404, b"")
        assert (await proxy.call("HEAD", "c")).headers["X-Storage-Policy"] == "silver"
        assert (await proxy.call("PUT", "c/o", data=NEW)).status == 201
        assert await held(proxy, B)
        # Whoever knows the object from before names the policy that is gone.
        assert (await proxy.api.objects.head(PATH, A)).size == len(NEW)
        assert (await proxy.call("DELETE", "c/o")).status == 204
        assert await held(proxy, A)


async def test_what_moves_is_read_at_the_version_that_was_found(proxy: Proxy) -> None:
    await bring(proxy, Phase.MOVING)
    await store(proxy, A, 600, OLD)
    info = await proxy.api.objects.head(PATH, B)

    async def no_pace(_size: int) -> None:
        return None

    await MovingObjects(proxy.cluster.objects, Move(A, B, B)).move(PATH, no_pace)
    download = await proxy.api.objects.get(PATH, B, version=info.timestamp)
    assert b"".join([chunk async for chunk in download.chunks()]) == OLD
    with pytest.raises(Unavailable):
        await proxy.api.objects.get(PATH, B, version=at(599))
    with pytest.raises(NotFound):
        await proxy.api.objects.get(Path(ACCOUNT, "c", "other"), B, version=at(599))


def test_only_a_settled_move_is_over_when_its_source_is_gone() -> None:
    move = PolicyMove(7, B, Phase.SETTLED, at(2), at(1))
    assert POLICIES.move_in_force(None) is None
    assert POLICIES.move_in_force(move) is None
    assert POLICIES.move_in_force(replace(move, source=A)) == replace(move, source=A)
    for phase in (Phase.ANNOUNCED, Phase.MOVING):
        assert POLICIES.move_in_force(replace(move, phase=phase)) is not None
