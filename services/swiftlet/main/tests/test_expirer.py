"""The expirer beside the replicator: where its nodes come from, and rounds that fail."""

from __future__ import annotations

import asyncio
from pathlib import Path

from swiftlet.errors import Unavailable
from swiftlet.expiry.expirer import ExpiryReport
from swiftlet.main.ring_names import object_ring
from swiftlet.main.rings import RingSet
from swiftlet.main.services.expirer import expire, nodes_of
from swiftlet.placement.tests.cluster import make_ring
from swiftlet.ring.codec import save
from swiftlet.settings import PolicySection
from swiftlet.settings.policies import Policies

POLICIES = Policies([PolicySection(index=0, name="a", default=True), PolicySection(index=1, name="b")])


class Rounds:
    """An expirer that only counts, and fails in its first round."""

    def __init__(self) -> None:
        self.begun = 0
        self.enough = asyncio.Event()

    async def run_round(self) -> ExpiryReport:
        """One more."""
        self.begun += 1
        if self.begun == 1:
            raise Unavailable("the queue is away")
        if self.begun == 3:
            self.enough.set()
        return ExpiryReport()


async def test_a_round_that_fails_is_followed_by_the_next() -> None:
    rounds = Rounds()
    task = asyncio.create_task(expire(rounds, 0.001))  # type: ignore[arg-type]
    await asyncio.wait_for(rounds.enough.wait(), 10)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_nodes_are_those_of_all_policies_as_far_as_their_rings_are_there(tmp_path: Path) -> None:
    rings = RingSet(tmp_path, [object_ring(0), object_ring(1)])
    rings.refresh()
    assert nodes_of(rings, POLICIES) == set()
    save(make_ring(3), tmp_path / "object-0.ring")
    rings.refresh()
    assert nodes_of(rings, POLICIES) == {"h0:6200", "h1:6200", "h2:6200"}
    save(make_ring(5), tmp_path / "object-1.ring")
    rings.refresh()
    assert len(nodes_of(rings, POLICIES)) == 5
