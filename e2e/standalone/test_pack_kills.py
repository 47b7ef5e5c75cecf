"""Processes of a store are killed while small objects are written, posted, deleted and packed; then it is seen that all
objects are right, that each pack is whole or gone, and that what packs have taken comes back.

Fault model: that of `e2e.standalone.coded_kills`, with a replicator that packs what is two seconds old. It is the
packer, so each time it is killed a pack may be left that is prepared, written, proved, adopted at some places, retired
at some, or deleted at some; and packs below the live share are written anew all the time, as objects are overwritten
soon after they were packed. `make check` leaves this to `e2e.standalone.test_kill_matrix`.
"""

from __future__ import annotations

import itertools
import json
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from e2e.standalone import coded_kills as kills
from e2e.standalone.cluster import Cluster
from e2e.standalone.coded_model import body_of
from e2e.standalone.packed_model import MARK, Done, PackedModel, PackedWorker, Small
from e2e.standalone.test_coded_space import live_bytes
from e2e.standalone.test_packed import TOMBSTONE_BYTES, pack, start, wait_until_packed
from e2e.standalone.threads import at_work
from e2e.standalone.wire import Client

OBJECTS = 120
PAUSE_S = 0.05
"""Seconds between two requests of a client, so that some objects get cold."""
COLD_S = 2.0
TOMBSTONES = 9
"""A deleted object has so many at most: of six fragments and three copies."""
LIVE_SHARE = 0.7
FILLED_BYTES = 3000

Found = dict[str, tuple[bytes, str]]
"""Bodies and marks of objects."""


def disturb(cluster: Cluster, client: Client, model: PackedModel, chooser: random.Random) -> Counter[str]:
    """Load the store while processes are killed; return how many of each were."""
    own = [model.names[number :: kills.CLIENTS] for number in range(kills.CLIENTS)]
    workers = [PackedWorker(client, kills.CONTAINER, model, names, random.Random(chooser.random())) for names in own]
    with at_work([worker.step for worker in workers], PAUSE_S) as over:
        killer = kills.Killer(cluster, chooser, over)
        while killer.kills < kills.KILLS and not over.wait(chooser.uniform(0.0, 1.0)):
            killer.step()
    for worker in workers:
        worker.close()
    return killer.killed


def read_all(client: Client, model: PackedModel, known: Found | None = None) -> Found:
    """Read all objects: each shows its last acknowledged operation or a later one. With devices away, `known` are those
    that there are: of the others it can't be told that they are not there.
    """
    found: Found = {}

    def read(small: Small) -> None:
        ask = client.insist if known is None or small.name in known else client.call
        answer = ask("GET", f"{kills.CONTAINER}/{small.name}")
        if answer.status == 503:
            return
        assert answer.status in {200, 404}, (small.name, answer)
        assert model.judge(small, (small.acknowledged, small.based), answer) is None, small.name
        if answer.status == 200:
            found[small.name] = answer.body, answer.headers[MARK]

    with ThreadPoolExecutor(kills.CLIENTS) as pool:
        list(pool.map(read, model.names))
    return found


def read_with_two_away(
    cluster: Cluster, client: Client, model: PackedModel, found: Found, chooser: random.Random
) -> None:
    """All is read while each of some pairs of object servers is away."""
    pairs = list(itertools.combinations(kills.SERVERS, 2))
    for away in chooser.sample(pairs, 1 if kills.KILLS < 100 else 8):
        cluster.kill(*away)
        assert read_all(client, model, found) == found, away
        cluster.start(*away)


def listed(client: Client) -> dict[str, int]:
    rows = client.insist("GET", kills.CONTAINER, query="format=json&limit=10000").json()
    return {row["name"]: row["bytes"] for row in rows}


def wait_until_listed(client: Client, found: Found) -> None:
    deadline = time.monotonic() + kills.WHOLE_WITHIN_S
    while listed(client) != {name: len(body) for name, (body, _) in found.items()}:
        assert time.monotonic() < deadline, (listed(client), found.keys())
        time.sleep(0.3)


def fill(client: Client, model: PackedModel, found: Found) -> None:
    """Write all objects that are not there, so that there is enough to pack however few the clients have left."""

    def put(small: Small) -> None:
        number = len(small.done)
        small.done.append(Done("put", FILLED_BYTES))
        body = body_of(small.name, number, FILLED_BYTES)
        assert client.insist("PUT", f"{kills.CONTAINER}/{small.name}", {MARK: str(number)}, body).status == 201
        small.acknowledged = small.based = number

    with ThreadPoolExecutor(kills.CLIENTS) as pool:
        list(pool.map(put, [small for small in model.names if small.name not in found]))


def delete_most(client: Client, model: PackedModel, found: Found) -> Found:
    """Delete two of three objects, so that little is left of most packs; return the others."""
    left = dict(sorted(found.items())[::3])
    for small in model.names:
        if small.name in found and small.name not in left:
            small.done.append(Done("delete"))
            assert client.insist("DELETE", f"{kills.CONTAINER}/{small.name}").status in {204, 404}
            small.acknowledged = small.based = len(small.done) - 1
    return left


def packing_of(cluster: Cluster) -> Counter[str]:
    """What the replicators have logged of their rounds of packing."""
    counts: Counter[str] = Counter()
    for line in cluster.log("replicator").splitlines():
        if '"round of packing"' in line:
            told = json.loads(line)
            names = ("made", "members", "finished", "rewritten", "retired", "deleted")
            counts.update({name: told[name] for name in names})
        counts["unfinished"] += '"a pack is not finished yet"' in line
        counts["stopped"] += '"a partition is not packed yet"' in line
    return counts


@pytest.mark.deep
@pytest.mark.timeout(1200 + 20 * kills.KILLS)
def test_nothing_is_lost_while_small_objects_are_packed_and_no_pack_is_left_behind(tmp_path: Path) -> None:
    print(f"SEED={kills.SEED} KILLS={kills.KILLS}")
    cluster = start(tmp_path, "4+2")
    try:
        pack(cluster, pack_after_s=COLD_S)
        client = Client(cluster.endpoint, cluster.user, cluster.key)
        assert client.insist("PUT", kills.CONTAINER, {"X-Storage-Policy": "coded"}).status in {201, 202}
        chooser, begun = random.Random(kills.SEED), time.monotonic()
        model = PackedModel([Small(f"o{number}") for number in range(OBJECTS)])
        killed = disturb(cluster, client, model, chooser)
        assert model.wrong == [], f"SEED={kills.SEED}: {len(model.wrong)} answers are wrong: {model.wrong[:5]}"
        quiet_s, loaded_s = time.time(), time.monotonic() - begun
        kills.wait_until_whole(cluster, quiet_s + kills.YOUNG_S)
        fill(client, model, read_all(client, model))
        found = read_all(client, model)
        assert len(found) == OBJECTS
        wait_until_packed(cluster, COLD_S)
        packed_s = time.time() - quiet_s
        assert read_all(client, model) == found
        found = delete_most(client, model, found)
        seen = wait_until_packed(cluster, COLD_S)
        assert seen["live_bytes"] >= LIVE_SHARE * seen["pack_bytes"], seen
        assert read_all(client, model) == found
        # What was packed meanwhile is compared once more.
        kills.wait_until_whole(cluster, time.time())
        read_with_two_away(cluster, client, model, found, chooser)
        wait_until_listed(client, found)
        for name in found:
            assert client.insist("DELETE", f"{kills.CONTAINER}/{name}").status in {204, 404}
        wait_until_packed(cluster, COLD_S)
        counts = packing_of(cluster)
    finally:
        assert cluster.stop() == 0
    assert counts["made"] > 0
    assert counts["rewritten"] > 0
    live = live_bytes(tmp_path / "devices")
    print(
        f"{loaded_s:.0f} s: killed {dict(killed)}; all packed {packed_s:.0f} s later; {dict(counts)}; {len(found)} "
        f"objects at the end; {live} bytes of tombstones; answers {dict(sorted(model.counts.items()))}"
    )
    assert live < (OBJECTS + counts["deleted"]) * TOMBSTONES * TOMBSTONE_BYTES
