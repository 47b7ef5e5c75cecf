"""Every process of a store with erasure coding is killed while everything is under way at the same time that may be cut
off in the middle: objects are written as they come in, small ones packed, packs of which little is live written anew,
fragments of a device that was lost rebuilt, and containers moved to erasure coding and out of it.

Fault model: that of `e2e.standalone.matrix_kills`. Two object servers are killed at a time, and devices wiped, so of
objects with three copies reads may show something older meanwhile; they may not show bytes of no write or of two, nor
metadata of others.

Afterwards nothing that was acknowledged is lost, by what clients know of each object, everything is whole by proof,
each container is where it was to go, listings say what there is, and devices keep no more than live objects need: of
what was abandoned (fragments, packs, copies in the policy before) nothing is left.

`SEED` chooses what is done and killed, `KILLS` how many processes are at least (`make coded-kills`). Which ones, and
while what is seen to be under way, is in `e2e.standalone.matrix_kills`.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from e2e.standalone import coded_kills as kills
from e2e.standalone import movers as moves
from e2e.standalone.cluster import Cluster
from e2e.standalone.lanes import Lane, moving_along
from e2e.standalone.matrix_kills import RINGS, MatrixKiller, assert_hit, matrix_of
from e2e.standalone.model_checks import Checks, settle
from e2e.standalone.model_clients import Model, Worker
from e2e.standalone.model_history import History
from e2e.standalone.movers import Movers, Way, put_still
from e2e.standalone.packed_model import PackedModel, PackedWorker, Small
from e2e.standalone.test_coded_space import live_bytes
from e2e.standalone.test_pack_kills import (
    delete_most,
    fill,
    packing_of,
    read_all,
    read_with_two_away,
    wait_until_listed,
)
from e2e.standalone.test_packed import TOMBSTONE_BYTES, start, wait_until_packed
from e2e.standalone.threads import at_work
from e2e.standalone.wire import Client

OBJECTS = 120
PAUSE_S = 0.05
"""Seconds between two requests of a client, so that some objects get cold."""
COLD_S = 2.0
LARGE = 0.15, (90_000, 1_500_000, 5_000_000)
"""The share of objects that are coded by themselves, and their bytes."""
PACK_BELOW = 65_536
FRAGMENT_FILE = 4 << 20
"""Bytes of an object above which fragments of 4+2 have files of their own."""
COPY_FILE = 1 << 20
"""Bytes of a copy above which it has a file of its own."""
LIVE_SHARE = 0.7
WAYS: dict[str, Way] = {"in": ("usual", kills.POLICY), "out": (kills.POLICY, "usual")}
CONTAINERS = 1 + kills.KILLS // 20
"""Containers that move in each direction."""
NAMES, STILL = 4, 40
"""Objects of each of them that clients write all the time, and that nobody writes again."""
RATE = 20_000
"""Bytes per second of movers while processes are killed: they copy for most of a minute in each container."""
MOVED_CLIENTS = 2
MOVERS_AT_ONCE = 6
"""Movers that bring to an end what was begun under load: they wait most of the time."""
MOVERS_WITHIN_S = 1800.0
ALL_HIT = 100
"""With so many kills everything is hit by every kind of process."""
SETTINGS = {
    **moves.BRIEFLY,
    **moves.SETTINGS,
    "SWIFTLET_REPLICATOR__PACK_AFTER_S": str(COLD_S),
    "SWIFTLET_REPLICATOR__PACK_LEAST_BYTES": "1",
}
TOMBSTONES = 9
"""An object that was deleted, or has moved, has so many at most: of six fragments and three copies."""


class MovedWorker(Worker):
    """A client of containers that move."""

    def step(self) -> None:
        """Make one random operation."""
        does = [self.put, self.post, self.delete, self.read]
        self._chooser.choices(does, [8, 4, 2, 6])[0](self._chooser.choice(self._paths))


def disturb(
    cluster: Cluster, client: Client, model: PackedModel, moved: Model, movers: Movers, chooser: random.Random
) -> MatrixKiller:
    """Load the store while everything is under way and processes are killed; return who has killed them."""
    own = [model.names[number :: kills.CLIENTS] for number in range(kills.CLIENTS)]
    workers: list[PackedWorker | MovedWorker] = [
        PackedWorker(client, kills.CONTAINER, model, names, random.Random(chooser.random()), large=LARGE)
        for names in own
    ]
    workers += [MovedWorker(client, moved, random.Random(chooser.random())) for _ in range(MOVED_CLIENTS)]
    lanes = [Lane(movers, way, containers_of(name), RATE) for name, way in WAYS.items()]
    with at_work([worker.step for worker in workers], PAUSE_S) as over, moving_along(lanes):
        killer = MatrixKiller(cluster, chooser, over, model, lanes)
        while killer.kills < kills.KILLS and not over.wait(chooser.uniform(0.0, 0.2)):
            killer.step()
    for worker in workers:
        worker.close()
    print(f"moved meanwhile: {[lane.moved for lane in lanes]}")
    return killer


def containers_of(name: str) -> list[str]:
    return [f"{name}{number}" for number in range(CONTAINERS)]


def make_moving(client: Client) -> tuple[Model, dict[str, History]]:
    """Containers that will move; a model of what clients write in them, and what is known of all else in them."""
    still: dict[str, History] = {}
    for name, (source, _) in WAYS.items():
        for container in containers_of(name):
            assert client.insist("PUT", container, {"X-Storage-Policy": source}).status in {201, 202}
    all_containers = [container for name in WAYS for container in containers_of(name)]
    with ThreadPoolExecutor(kills.CLIENTS) as pool:
        for found in pool.map(lambda container: put_still(client, container, STILL), all_containers):
            still |= found
    histories = {f"{container}/o{number}": History() for number in range(NAMES) for container in all_containers}
    return Model(histories, may_be_behind=True), still


def finish_moves(movers: Movers) -> dict[str, Way]:
    """Move what is not moved yet; return all containers and how they have moved."""
    ways = {container: way for name, way in WAYS.items() for container in containers_of(name)}
    with ThreadPoolExecutor(MOVERS_AT_ONCE) as pool:
        assert all(pool.map(lambda one: movers.finish(one[0], *one[1]), ways.items()))
    return ways


def is_equal(cluster: Cluster) -> bool:
    """Whether the last round of the replicator has found all copies to be the same at all of their places: where one
    keeps what others have deleted, no round does.
    """
    last = kills.report_of(cluster)["lastRounds"][-1]
    return bool(last["whole"] and last["compared"] == last["in_sync"])


def sizes_in(client: Client, container: str) -> list[int]:
    rows = client.insist("GET", container, query="format=json&limit=10000").json()
    return [row["bytes"] for row in rows]


def needed_bytes(sizes: Mapping[str, Sequence[int]], dead: int, left_out: int) -> int:
    """Return how many bytes devices need at most, in their volumes, for objects of these sizes by policy and for so
    many dead ones; `left_out` small ones stay out of packs.
    """
    needed = TOMBSTONES * TOMBSTONE_BYTES * dead + left_out * 3 * PACK_BELOW
    for size in sizes[kills.POLICY]:
        if size <= PACK_BELOW:
            needed += math.ceil(1.6 / LIVE_SHARE * (size + 200))
        elif size <= FRAGMENT_FILE:
            needed += math.ceil(1.5 * size) + 6 * 1000
        else:
            needed += 6 * 1000
    return needed + sum(3 * ((size if size <= COPY_FILE else 0) + 600) for size in sizes["usual"])


@pytest.mark.timeout(900 + 30 * kills.KILLS)
def test_nothing_is_lost_mixed_or_left_behind_whatever_is_killed_while_whatever_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"SEED={kills.SEED} KILLS={kills.KILLS}")
    cluster = start(tmp_path, "4+2", SETTINGS)
    try:
        client = Client(cluster.endpoint, cluster.user, cluster.key)
        assert client.insist("PUT", kills.CONTAINER, {"X-Storage-Policy": kills.POLICY}).status in {201, 202}
        chooser, begun = random.Random(kills.SEED), time.monotonic()
        model = PackedModel([Small(f"o{number}") for number in range(OBJECTS)])
        moved, still = make_moving(client)
        movers = Movers(cluster, client.account, MOVERS_WITHIN_S)
        killer = disturb(cluster, client, model, moved, movers, chooser)
        matrix = matrix_of(cluster, killer.all)
        print(f"killed {dict(killer.killed)} in {time.monotonic() - begun:.0f} s")
        print("".join(f"  during {what}: {dict(count)}\n" for what, count in sorted(matrix.items())))
        assert model.wrong == [], f"{len(model.wrong)} answers are wrong: {model.wrong[:5]}"
        assert moved.wrong == [], f"{len(moved.wrong)} answers are wrong: {moved.wrong[:5]}"
        quiet_s, loaded_s = time.time(), time.monotonic() - begun
        kills.wait_until_whole(cluster, quiet_s + kills.YOUNG_S, RINGS)
        whole_s = time.time() - quiet_s
        # What devices that were away have yet to tell of is moved as well.
        settle(cluster)
        ways = finish_moves(movers)
        settle(cluster)
        moved.histories |= still
        checks = Checks(cluster, client, moved)
        checks._listings(checks._objects())
        for variable, value in cluster.settings.items():
            monkeypatch.setenv(variable, value)
        movers.must_have_moved(ways.items(), list(moved.histories))
        print(f"{time.monotonic() - begun:.0f} s: whole {whole_s:.0f} s after the last kill, and moved")
        fill(client, model, read_all(client, model))
        found = read_all(client, model)
        assert len(found) == OBJECTS
        wait_until_packed(cluster, COLD_S)
        assert read_all(client, model) == found
        found = delete_most(client, model, found)
        seen = wait_until_packed(cluster, COLD_S)
        assert seen["live_bytes"] >= LIVE_SHARE * seen["pack_bytes"], seen
        assert read_all(client, model) == found
        kills.wait_until_whole(cluster, time.time(), RINGS)
        kills.wait_until(lambda: is_equal(cluster), cluster)
        read_with_two_away(cluster, client, model, found, chooser)
        wait_until_listed(client, found)
        sizes = {"usual": list[int](), kills.POLICY: [len(body) for body, _ in found.values()]}
        for container, (_, target) in ways.items():
            sizes[target] += sizes_in(client, container)
        files = 6 * sum(size > FRAGMENT_FILE for size in sizes[kills.POLICY])
        files += 3 * sum(size > COPY_FILE for size in sizes["usual"])
        kills.wait_until(lambda: len(kills.large_files(cluster)) == files, cluster)
        counts = packing_of(cluster)
    finally:
        assert cluster.stop() == 0
    live = live_bytes(tmp_path / "devices")
    needed = needed_bytes(sizes, OBJECTS + counts["deleted"] + len(moved.histories), seen["left_out"])
    print(
        f"{time.monotonic() - begun:.0f} s in all, {loaded_s:.0f} s of them under load\n"
        f"  packs: {dict(counts)}\n"
        f"  {sum(map(len, sizes.values()))} objects, {sum(map(sum, sizes.values()))} bytes; {live} bytes in volumes of "
        f"at most {needed}, and {files} files\n"
        f"  answers {dict(sorted(model.counts.items()))} and {dict(sorted(moved.counts.items()))}"
    )
    assert live <= needed
    assert counts["made"] > 0
    assert counts["rewritten"] > 0
    if kills.KILLS >= ALL_HIT:
        assert_hit(matrix, killer.killed)
