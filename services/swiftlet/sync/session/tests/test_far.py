"""Devices in other regions: what they lack is left to them, what is lacking here to the delegate, with patience."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from swiftlet.model import PostRecord
from swiftlet.ring.model import Device
from swiftlet.sync.session import far
from swiftlet.sync.session.compare import Need
from swiftlet.sync.session.effects import HandoffReturned, Limits, Proved, Repaired, Terms
from swiftlet.sync.session.far import DELEGATE_S, PATIENCE_S, Far, Fetching, Left, ToFetch
from swiftlet.sync.session.handoff import handoff_session
from swiftlet.sync.session.neighbour import neighbour_session
from swiftlet.sync.session.tests.world import NOW_S, Peers, at, digest

ME, FAR, OTHER_FAR, NEAR, FAR_TOO, NEAR_TOO = range(6)
REGIONS = ("here", "there", "elsewhere", "here", "there", "here")
PRIMARIES = (FAR, OTHER_FAR, NEAR)
SMALL = Limits(partitions=1, differing=1, suffixes=1, entries=1, moves=1, hashes=1, wanted=1)


def _device(id_: int) -> Device:
    return Device(id_, f"d{id_}", f"h{id_}", 1, "d", REGIONS[id_], "z", f"n{id_}", 1.0)


class Region:
    """One device whose neighbours `FAR` and `OTHER_FAR` are in other regions, and what it does in its rounds."""

    def __init__(self, limits: Limits | None = None, primaries: tuple[int, ...] = (ME, FAR, OTHER_FAR, NEAR)) -> None:
        """The clock is at `NOW_S`."""
        self.peers = Peers()
        self.fetching = Fetching()
        self.now_s = NOW_S
        self.away: set[int] = set()
        self.primaries = primaries
        known = Far(
            ME,
            0,
            dict(enumerate(REGIONS)),
            lambda partition: [_device(number) for number in self.primaries],
            lambda device: device.id in self.away,
            self.fetching,
        )
        self.terms = replace(Terms(), far=known, limits=limits or Limits())

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

    def left(self) -> list[Repaired]:
        """What the last round has left to do."""
        return [one for one in self.peers.told if isinstance(one, Repaired)]

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
    assert region.left() == [Repaired(FAR, 0, 0, 2, 0, 2)]
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


def test_a_handoff_without_a_primary_in_its_region_goes_to_one_of_each_other(region: Region) -> None:
    region.primaries = (FAR_TOO, FAR, OTHER_FAR)
    region.peers.put((ME,), 1, 1)
    region.now_s += 1
    session = handoff_session(region.terms, 0, region.primaries)
    region.peers.drive(ME, session, region.now_s)
    assert region.peers.told == [HandoffReturned(0, 0, 1, {FAR: 1})]
    assert region.peers.entries(FAR_TOO) == region.peers.entries(OTHER_FAR) == region.peers.entries(ME)
    assert region.peers.entries(FAR) == []


# Delegates. Here NEAR comes before the own device in the ring, and FAR before FAR_TOO.


@pytest.fixture(params=["many", "page by page"])
def second(request: pytest.FixtureRequest) -> Region:
    return Region(SMALL if request.param == "page by page" else None, (NEAR, FAR, ME, FAR_TOO, OTHER_FAR))


def test_who_is_not_the_delegate_gets_data_from_it(second: Region) -> None:
    second.peers.put((FAR, FAR_TOO), 1, 1)
    for peer in (FAR, FAR_TOO, NEAR):
        second.round(peer)
        assert second.moved() == []
    second.round(FAR)
    assert second.left() == [Repaired(FAR, 0, behind=1, awaited=1)]
    second.peers.put((NEAR,), 1, 1)
    second.round(NEAR)
    assert second.moved() == [(True, digest(1))]
    second.round(FAR)
    assert {at for one in second.peers.told if isinstance(one, Proved) for at in one.partitions} == {0, 1}
    assert second.left() == []


def test_the_delegate_fetches_at_once(region: Region) -> None:
    region.primaries = (FAR, ME, NEAR, FAR_TOO)
    region.peers.put((FAR,), 1, 1)
    region.round(FAR)
    assert region.moved() == [(True, digest(1))]


def test_deletions_and_metadata_are_fetched_at_once(second: Region) -> None:
    second.peers.put((ME, FAR), 1, 1)
    second.peers.put((ME, FAR), 2, 1)
    second.peers.delete((FAR,), 1, 2)
    second.peers.device(FAR).post(0, digest(2), PostRecord(at(2), {}), "test")
    second.round(FAR)
    assert sorted(push.need.value for _, move in second.peers.moves for push in move.objects) == ["meta", "tombstone"]
    assert second.peers.entries(ME) == second.peers.entries(FAR)


def test_who_follows_an_absent_delegate_is_it(second: Region) -> None:
    second.peers.put((FAR,), 1, 1)
    second.away = {NEAR}
    second.round(FAR)
    assert second.moved() == [(True, digest(1))]


def test_the_next_in_line_fetches_what_the_delegate_does_not(second: Region) -> None:
    second.peers.put((FAR,), 1, 1)
    second.round(FAR)
    for after_s in (DELEGATE_S / 2, DELEGATE_S / 2 - 1, 1):
        second.round(FAR, after_s)
        assert second.moved() == []
    second.round(FAR, 1)
    assert second.moved() == [(True, digest(1))]


def test_the_third_in_line_waits_for_the_second(second: Region) -> None:
    second.primaries = (NEAR, FAR, NEAR_TOO, ME)
    second.peers.put((FAR,), 1, 1)
    second.round(FAR)
    second.round(FAR, DELEGATE_S)
    second.round(FAR, DELEGATE_S - 1)
    second.round(FAR, 1)
    assert second.moved() == []
    second.round(FAR, 1)
    assert second.moved() == [(True, digest(1))]


def test_a_delegate_that_gets_on_elsewhere_is_waited_for_but_not_for_ever(
    second: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(far, "LONGEST_S", 5 * DELEGATE_S)
    monkeypatch.setattr(far, "REGION_S", 3 * DELEGATE_S)
    second.peers.put((FAR,), 1, 1)
    rounds = math.ceil(far.LONGEST_S / (DELEGATE_S - 1))
    for number in range(2, rounds + 3):
        # In partition 1 the delegate brings what was lacking there, and something else is lacking.
        second.peers.put((FAR,), number, number, partition=1)
        if number > 2:
            second.peers.put((ME,), number - 1, number - 1, partition=1)
        second.round(FAR, DELEGATE_S - 1)
        assert second.moved() == []
    second.round(FAR)
    assert second.moved() == [(True, digest(1))]


def test_a_delegate_that_does_not_get_on_is_waited_for_a_while_if_others_of_its_region_do() -> None:
    """The link may be busy with what those fetch."""
    fetching = Fetching()
    mine, theirs = Left(ME, 0, FAR, 0, True, NEAR, "here"), Left(ME, 0, FAR, 1, True, NEAR_TOO, "here")
    now_s = 0.0
    while now_s < far.REGION_S + 10.0:
        assert fetching.waits(mine, DELEGATE_S)
        fetching.begin()
        fetching.lacks(mine, ToFetch(1, 1), now_s)
        # Something else is lacking in each round.
        fetching.lacks(theirs, ToFetch(1, round(now_s)), now_s)
        now_s += 10.0
    fetching.begin()
    assert not fetching.waits(mine, DELEGATE_S)


def test_what_is_seen_no_more_was_brought_if_others_are_seen(second: Region) -> None:
    second.peers.put((FAR,), 1, 1)
    second.peers.put((FAR,), 2, 1, partition=1)
    second.round(FAR)
    second.round(FAR, DELEGATE_S - 1)
    second.peers.put((ME,), 2, 1, partition=1)
    second.round(FAR)
    for _ in range(2):
        second.round(FAR, DELEGATE_S - 2)
        assert second.moved() == []
    second.round(FAR)
    assert second.moved() == [(True, digest(1))]


@pytest.mark.parametrize(
    ("peer", "primaries", "patience_s"),
    [
        # One device in each region: it has its turn before it is sent to.
        (FAR, (ME, FAR), PATIENCE_S),
        # Both devices there have theirs, then the delegate here sends, to the delegate there first.
        (FAR, (ME, NEAR, FAR, FAR_TOO), DELEGATE_S + PATIENCE_S),
        (FAR_TOO, (ME, NEAR, FAR, FAR_TOO), DELEGATE_S + 2 * PATIENCE_S),
        (FAR, (NEAR, ME, FAR, FAR_TOO), DELEGATE_S + 2 * PATIENCE_S),
        (FAR_TOO, (NEAR, ME, FAR, FAR_TOO), DELEGATE_S + 3 * PATIENCE_S),
        # Those of other regions have their turns, too.
        (FAR, (OTHER_FAR, ME, FAR), 2 * PATIENCE_S),
        # A handoff comes after all primaries.
        (FAR, (NEAR, FAR), 2 * PATIENCE_S),
    ],
)
def test_the_turns_in_which_data_are_sent(peer: int, primaries: tuple[int, ...], patience_s: float) -> None:
    region = Region(primaries=primaries)
    assert region.terms.far is not None
    assert region.terms.far.patience_of(peer, 0, False) == (peer, patience_s)
    region.peers.put((ME,), 1, 1)
    region.round(peer)
    region.round(peer, patience_s - 1)
    region.round(peer, 1)
    assert region.moved() == []
    region.round(peer)
    assert region.moved() == [(False, digest(1))]
