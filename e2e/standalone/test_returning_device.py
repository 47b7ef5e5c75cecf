"""A device leaves the ring of a policy with erasure coding, and comes back with what it had, after the packs to which
it refers were written anew and deleted, and objects were overwritten, posted to and deleted. While it is brought what
it lacks the ring changes once more, and it has to give away some of its places again.

By its set hashes it would pass for one that has all objects of its places: their versions are the same, only where
their bytes are has changed. So what counts is read with the other devices away that have copies of the same objects.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.standalone import coded_kills as kills
from e2e.standalone.cluster import Cluster
from e2e.standalone.test_coded_space import live_bytes
from e2e.standalone.test_pack_kills import packing_of
from e2e.standalone.test_packed import (
    TOMBSTONE_BYTES,
    Bodies,
    assert_listed,
    assert_right,
    delete_most,
    made,
    packed,
    user_bytes,
    wait_until_packed,
)
from e2e.standalone.wire import Client
from swiftlet.main.commands.standalone.plan import Layout
from swiftlet.ring import Ring, RingBuilder
from swiftlet.ring.codec import load_builder, save, save_builder

HOLDERS = 3
"""Places of 4+2 that have small objects."""
LARGE_BYTES = 3_000_000


@dataclass
class Rings:
    """The ring of the coded policy, as an operator changes it."""

    directory: Path
    hours: int

    @property
    def _builder(self) -> Path:
        return self.directory / f"{kills.RING}.builder"

    def take_out(self, builder: RingBuilder, name: str) -> Ring:
        """Remove a device; the ring without it."""
        builder.remove_device(next(device.id for device in builder.devices if device and device.name == name))
        return self._rebalanced(builder)

    def put_back(self, builder: RingBuilder, name: str, before: Ring) -> Ring:
        """Add a device as it was; the ring with it."""
        known = next(device for device in before.devices if device and device.name == name)
        builder.add_device(
            name=name,
            host=known.host,
            port=known.port,
            device=known.device,
            region=known.region,
            zone=known.zone,
            node=known.node,
            weight=known.weight,
        )
        return self._rebalanced(builder)

    def lighten(self, builder: RingBuilder, name: str) -> Ring:
        """Halve the weight of a device; the ring in which it has fewer places."""
        known = next(device for device in builder.devices if device and device.name == name)
        builder.set_weight(known.id, known.weight / 2)
        return self._rebalanced(builder)

    def _rebalanced(self, builder: RingBuilder) -> Ring:
        # As if copies of the change before were long done, whether they are or not.
        self.hours += 2
        builder.rebalance(self.hours)
        return builder.ring

    def load(self) -> RingBuilder:
        return load_builder(self._builder)

    def write(self, builder: RingBuilder) -> None:
        """Give the services the ring."""
        save_builder(builder, self._builder)
        save(builder.ring, self.directory / f"{kills.RING}.ring")

    def chosen(self) -> tuple[str, list[int]]:
        """A device that has copies of the same partitions again when it was away and has less weight, and these
        partitions; with the lower weight it has not all of its places again.
        """
        found: list[tuple[int, str, list[int]]] = []
        hours = self.hours
        for server in kills.SERVERS:
            builder, name = self.load(), f"d{server.partition('-')[2]}"
            before = builder.ring
            self.take_out(builder, name)
            back = self.put_back(builder, name, before)
            after = self.lighten(builder, name)
            again = sorted(held_by(before, name) & held_by(back, name) & held_by(after, name))
            gives_away = places_of(back, name) - places_of(after, name)
            found.append((len(again) if gives_away else 0, name, again))
            self.hours = hours
        count, name, again = max(found)
        assert count, found
        return name, again


def held_by(ring: Ring, name: str) -> set[int]:
    """The partitions of whose small objects a device has copies."""
    return {partition for partition in range(ring.partition_count) if name in holders(ring, partition)}


def places_of(ring: Ring, name: str) -> set[tuple[int, int]]:
    """A device's partitions, and its place in each."""
    return {
        (partition, place)
        for partition in range(ring.partition_count)
        for place, device in enumerate(ring.primaries(partition))
        if device.name == name
    }


def holders(ring: Ring, partition: int) -> list[str]:
    return [device.name for device in ring.primaries(partition)[:HOLDERS]]


def wait_until_whole(cluster: Cluster, names: Sequence[str], since_s: float) -> None:
    """Wait for the proof that these devices, which are all that the ring has, lack nothing."""

    def is_whole() -> bool:
        report = kills.report_of(cluster)
        repairs = report["repairs"] or {"undecided": 1}
        found = [report["devices"][name]["rings"].get(kills.RING) for name in names]
        is_synced = all(ring and (ring["syncedAt"] or 0) > since_s for ring in found)
        return is_synced and not (repairs["undecided"] or repairs["left"])

    kills.wait_until(is_whole, cluster)


def is_looked_after(cluster: Cluster, name: str) -> bool:
    """Whether a replicator looks after a device in the coded policy's ring."""
    return kills.RING in kills.report_of(cluster)["devices"].get(name, {}).get("rings", {})


def change_some(client: Client, bodies: Bodies) -> None:
    """Overwrite and post to some objects; all keep the metadata that they had."""
    for number, name in enumerate(sorted(bodies)):
        if number % 7 == 0:
            bodies[name] = bodies[name][::-1]
            assert client.call("PUT", f"c/{name}", {"X-Object-Meta-Name": name}, bodies[name]).status == 201
        elif number % 7 == 1:
            sent = {"X-Object-Meta-Name": name, "X-Object-Meta-Posted": "meanwhile"}
            assert client.call("POST", f"c/{name}", sent).status == 202


def posted(client: Client, bodies: Bodies) -> set[str]:
    """The objects with metadata that were posted meanwhile."""
    heads = {name: client.call("HEAD", f"c/{name}").headers for name in bodies}
    return {name for name, head in heads.items() if head.get("X-Object-Meta-Posted") == "meanwhile"}


@pytest.mark.timeout(1200)
def test_a_device_that_comes_back_refers_to_nothing_that_is_gone_and_gets_what_it_has_missed(tmp_path: Path) -> None:
    bodies = made(3)
    large = {f"large{number}": bytes([number]) * LARGE_BYTES for number in range(4)}
    with packed(tmp_path, "4+2", bodies | large) as (cluster, client, before):
        rings = Rings(Layout(cluster.data).rings, int(time.time() // 3600))
        name, again = rings.chosen()
        server, names = f"object-{name[1:]}", [f"d{other.partition('-')[2]}" for other in kills.SERVERS]
        others = [other for other in names if other != name]
        cluster.kill(server)
        builder = rings.load()
        with_it = builder.ring
        rings.take_out(builder, name)
        rings.write(builder)
        wait_until_whole(cluster, others, time.time() + kills.YOUNG_S)
        left = delete_most(client, bodies)
        change_some(client, left)
        are_posted = posted(client, left)
        for gone in sorted(large)[:2]:
            assert client.call("DELETE", f"c/{gone}").status == 204
            del large[gone]
        wait_until_packed(cluster)
        assert packing_of(cluster)["deleted"] >= before["packs"] > 0, "each pack to which the device refers is gone"
        rings.put_back(builder, name, with_it)
        rings.write(builder)
        cluster.start(server)
        kills.wait_until(lambda: is_looked_after(cluster, name), cluster)
        rings.lighten(builder, name)
        rings.write(builder)
        began_s = time.time()
        wait_until_whole(cluster, names, began_s + kills.YOUNG_S)
        print(f"{name} has copies of partitions {again} again: whole {time.time() - began_s:.0f} s later")
        assert_right(client, left | large)
        for partition in again:
            away = [f"object-{other[1:]}" for other in holders(builder.ring, partition) if other != name]
            cluster.kill(*away)
            assert_right(client, left | large)
            assert posted(client, left) == are_posted, away
            cluster.start(*away)
        assert_listed(client, left | large)
        assert {client.call("GET", f"c/{gone}").status for gone in bodies.keys() - left.keys()} == {404}
        wait_until_packed(cluster)
    live, fragments = live_bytes(tmp_path / "devices"), sum((4, 2))
    dead = TOMBSTONE_BYTES * (len(bodies) - len(left) + packing_of(cluster)["deleted"] + 4)
    print(f"{live} bytes for {user_bytes(left)} of {len(left)} small objects and {len(large)} large ones")
    alone = len(large) * (1.5 * LARGE_BYTES + fragments * 1000)
    assert live < 1.6 / 0.7 * user_bytes(left) + alone + (fragments + 3) * dead
