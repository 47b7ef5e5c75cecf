"""Devices in other regions: what they lack is left to them to fetch, and sent when they don't get on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swiftlet.sync.session.compare import Need
from swiftlet.sync.session.effects import HandoffReturned, Limits, Repaired, Terms
from swiftlet.sync.session.far import PATIENCE_S, Far, Fetching
from swiftlet.sync.session.handoff import handoff_session
from swiftlet.sync.session.neighbour import neighbour_session
from swiftlet.sync.session.tests.world import NOW_S, Peers, digest

ME, FAR, OTHER_FAR, NEAR = 0, 1, 2, 3
PRIMARIES = (FAR, OTHER_FAR, NEAR)
SMALL = Limits(partitions=1, differing=1, suffixes=1, entries=1, moves=1, hashes=1, wanted=1)


class Region:
    """One device whose neighbours `FAR` and `OTHER_FAR` are in other regions, and what it does in its rounds."""

    def __init__(self, limits: Limits | None = None) -> None:
        """The clock is at `NOW_S`."""
        self.peers = Peers()
        self.fetching = Fetching()
        self.now_s = NOW_S
        far = Far(ME, 0, frozenset({FAR, OTHER_FAR}), self.fetching)
        self.terms = replace(Terms(), far=far, limits=limits or Limits())

    def round(self, peer: int, after_s: float = 0.0) -> None:
        """A round so many seconds after the last one, in which partition 0 is compared with one peer."""
        self.now_s += after_s
        self.fetching.begin()
        self.peers.told = []
        self.peers.moves = []
        session = neighbour_session(self.terms, peer, (0, 1))
        self.peers.drive(ME, session, self.now_s)
        assert session.error is None

    def return_handoff(self, absent: tuple[int, ...] = (), after_s: float = 0.0) -> HandoffReturned:
        """A round in which partition 0 is returned to its primaries."""
        self.now_s += after_s
        self.fetching.begin()
        self.peers.told = []
        session = handoff_session(self.terms, 0, PRIMARIES, absent)
        self.peers.drive(ME, session, self.now_s)
        assert session.error is None
        (told,) = self.peers.told
        assert isinstance(told, HandoffReturned)
        return told

    def moved(self) -> list[tuple[bool, bytes]]:
        """What was brought: whether it was pulled, and of which object."""
        return [(move.pull, push.entry.digest) for _, move in self.peers.moves for push in move.objects]


@pytest.fixture(params=["many", "page by page"])
def region(request: pytest.FixtureRequest) -> Region:
    return Region(SMALL if request.param == "page by page" else None)


def test_data_are_left_to_a_device_in_another_region_and_what_is_lacking_here_is_fetched(region: Region) -> None:
    region.peers.put((ME,), 1, 1)
    region.peers.put((ME,), 2, 1)
    region.peers.put((FAR,), 3, 1)
    region.round(FAR)
    assert region.moved() == [(True, digest(3))]
    assert [one for one in region.peers.told if isinstance(one, Repaired)] == [Repaired(FAR, 0, 0, 2, 0, 2)]
    region.round(NEAR)
    assert sorted(region.moved()) == [(False, digest(number)) for number in (1, 2, 3)]


def test_deletions_are_sent_at_once(region: Region) -> None:
    region.peers.put((ME, FAR), 1, 1)
    region.peers.delete((ME,), 1, 2)
    region.round(FAR)
    assert [push.need for _, move in region.peers.moves for push in move.objects] == [Need.TOMBSTONE]
    assert region.peers.entries(FAR) == region.peers.entries(ME)


def test_what_is_lacking_for_too_long_is_sent(region: Region) -> None:
    region.peers.put((ME,), 1, 1)
    region.round(FAR)
    for after_s in (PATIENCE_S / 2, PATIENCE_S / 2 - 1, 1):
        region.round(FAR, after_s)
        assert region.moved() == []
    region.round(FAR, 1)
    assert region.moved() == [(False, digest(1))]


@pytest.mark.parametrize("progress", ["less is lacking", "the oldest has come"])
def test_who_gets_on_is_waited_for(region: Region, progress: str) -> None:
    for number in (1, 2, 3):
        region.peers.put((ME,), number, number)
    region.round(FAR)
    region.round(FAR, PATIENCE_S - 1)
    if progress == "less is lacking":
        region.peers.put((FAR,), 3, 3)
    else:
        region.peers.put((FAR,), 1, 1)
        region.peers.put((ME,), 4, 4)
        region.peers.put((ME,), 5, 5)
    for after_s in (1, PATIENCE_S - 1, 1):
        region.round(FAR, after_s)
        assert region.moved() == []
    region.round(FAR)
    assert len(region.moved()) == len(region.peers.entries(ME)) - 1


def test_a_partition_that_was_equal_begins_anew(region: Region) -> None:
    region.peers.put((ME,), 1, 1)
    region.round(FAR)
    region.round(FAR, PATIENCE_S)
    region.peers.put((FAR,), 1, 1)
    region.round(FAR)
    region.peers.put((ME,), 2, 1)
    region.round(FAR)
    assert region.moved() == []


def test_peers_and_partitions_are_waited_for_by_themselves(region: Region) -> None:
    region.peers.put((ME,), 1, 1)
    region.round(FAR)
    region.peers.put((ME,), 2, 1, partition=1)
    region.round(FAR, PATIENCE_S)
    region.round(FAR)
    assert region.moved() == [(False, digest(1))]
    region.round(OTHER_FAR)
    assert region.moved() == []


def test_a_handoff_goes_to_the_primary_of_the_region_from_which_others_fetch_it(region: Region) -> None:
    region.peers.put((ME,), 1, 1)
    assert region.return_handoff() == HandoffReturned(0, 0, 1, {FAR: 1, OTHER_FAR: 1})
    assert region.peers.entries(NEAR) == region.peers.entries(ME)
    region.peers.put((FAR, OTHER_FAR), 1, 1)
    assert region.return_handoff() == HandoffReturned(0, 1, 0, {})


def test_a_handoff_without_a_primary_in_its_region_goes_to_all(region: Region) -> None:
    region.peers.put((ME,), 1, 1)
    assert region.return_handoff(absent=(NEAR,)) == HandoffReturned(0, 0, 1, {})
    assert region.peers.entries(FAR) == region.peers.entries(OTHER_FAR) == region.peers.entries(ME)


def test_a_handoff_that_nobody_fetches_is_sent(region: Region) -> None:
    region.peers.put((ME,), 1, 1)
    for after_s in (0, PATIENCE_S - 1, 1):
        assert region.return_handoff(after_s=after_s).to_fetch == {FAR: 1, OTHER_FAR: 1}
    assert region.return_handoff() == HandoffReturned(0, 1, 0, {})
