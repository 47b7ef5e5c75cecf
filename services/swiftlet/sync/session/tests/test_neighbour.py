"""The side that asks: what it says in every mode, what it moves, and what it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swiftlet.errors import DeviceFailed, NodeTimeout
from swiftlet.model import Entry, Kind, PostRecord
from swiftlet.sync.session.effects import Limits, Move, MoveOutcome, Proved, Repaired, Terms
from swiftlet.sync.session.messages import (
    AskEntries,
    AskManyEntries,
    AskSuffixes,
    Compare,
    Entries,
    Equal,
    ManyEntries,
    Message,
    Roots,
    Suffixes,
    SuffixHashes,
)
from swiftlet.sync.session.neighbour import neighbour_session
from swiftlet.sync.session.tests.world import NOW_S, Peers, at, digest
from swiftlet.sync.session.topology import ALL_TO_ALL, BATCHED, LIGHTSYNC, MODES, Mode
from swiftlet.transport.wire import WireError

ME, PEER = 0, 1
SMALL = Limits(partitions=2, differing=1, suffixes=2, entries=3, moves=2)


def kinds(peers: Peers) -> list[type[Message]]:
    return [type(message) for _, message, _ in peers.said]


def round_of(peers: Peers, partitions: tuple[int, ...] = (0,), terms: Terms | None = None) -> None:
    session = neighbour_session(terms or Terms(), PEER, partitions)
    peers.drive(ME, session)
    assert session.error is None


def test_equal_partitions_take_one_question() -> None:
    peers = Peers()
    for partition in range(50):
        peers.put((ME, PEER), partition, 1, partition)
    round_of(peers, tuple(range(60)))
    assert kinds(peers) == [Compare, Equal]
    assert peers.told == [Proved(PEER, tuple(range(60)))]
    assert [size for *_, size in peers.said] == [21 + 1 + 60, 4]


def test_batched_goes_down_to_what_is_lacking_and_brings_both_ways() -> None:
    peers = Peers()
    for partition in range(4):
        peers.put((ME, PEER), 1, 1, partition)
    peers.put((ME,), 2, 2, 1)
    peers.put((PEER,), 3, 3, 1)
    peers.put((PEER,), 4, 4, 3)
    round_of(peers, (3, 2, 1, 0))
    assert kinds(peers) == [Compare, Roots, AskSuffixes, Suffixes, AskManyEntries, ManyEntries]
    assert peers.told == [Proved(PEER, (0, 2)), Repaired(PEER, 1), Repaired(PEER, 3)]
    assert [(m.pull, len(m.objects)) for _, m in peers.moves] == [(False, 1), (True, 1), (True, 1)]
    for partition in range(4):
        assert peers.entries(ME, partition) == peers.entries(PEER, partition)


def test_lightsync_says_one_root_a_message_and_only_pushes() -> None:
    peers = Peers()
    terms = Terms(mode=LIGHTSYNC)
    peers.put((ME, PEER), 1, 1, 0)
    peers.put((ME,), 2, 1, 1)
    peers.put((PEER,), 3, 1, 2)
    round_of(peers, (2, 0, 1), terms)
    assert kinds(peers) == [Compare, Suffixes, Compare, Equal, Compare, Suffixes, AskEntries, Entries]
    assert [m.partitions for _, m, _ in peers.said if isinstance(m, Compare)] == [(2,), (0,), (1,)]
    assert [m.pull for _, m in peers.moves] == [False]
    assert peers.entries(ME, 1) == peers.entries(PEER, 1)
    assert peers.entries(ME, 2) == []


def test_all_to_all_begins_with_all_suffix_hashes() -> None:
    peers = Peers()
    for suffix in range(20):
        peers.put((ME, PEER), 1, 1, suffix=suffix)
    peers.put((ME,), 2, 1, suffix=5)
    round_of(peers, terms=Terms(mode=ALL_TO_ALL))
    assert kinds(peers) == [AskSuffixes, Suffixes, AskEntries, Entries]
    assert peers.said[1][2] > 20 * 18
    assert peers.entries(ME) == peers.entries(PEER)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_an_older_version_never_goes_over_a_newer_one(mode: Mode) -> None:
    peers = Peers()
    peers.put((ME,), 1, 1)
    peers.put((PEER,), 1, 2)
    peers.put((ME,), 2, 1)
    peers.delete((PEER,), 2, 2)
    round_of(peers, terms=replace(Terms(), mode=mode))
    assert [m.pull for _, m in peers.moves] == ([True] if mode is BATCHED else [])
    assert [entry.timestamp for entry in peers.entries(PEER)] == [at(2), at(2)]


def test_what_is_in_flight_is_left_alone_and_what_is_forgotten_too() -> None:
    peers = Peers()
    peers.put((ME,), 1, NOW_S - 5)
    peers.delete((ME,), 2, NOW_S - 3000)
    peers.delete((PEER,), 3, NOW_S - 3000)
    peers.delete((ME,), 4, NOW_S - 3000)
    peers.put((PEER,), 4, NOW_S - 3500)
    round_of(peers, terms=Terms(reclaim_age_s=2000.0, reclaim_period_s=100.0))
    assert [[p.entry.digest for p in m.objects] for _, m in peers.moves] == [[digest(4)]]
    assert peers.told == [Repaired(PEER, 0)]


def test_posts_cross_each_other() -> None:
    peers = Peers()
    peers.put((ME, PEER), 1, 1)
    peers.device(ME).post(0, digest(1), PostRecord(at(4), {}), "test")
    peers.device(PEER).post(0, digest(1), PostRecord(at(3), {}, "text/html", at(3)), "test")
    peers.put((PEER,), 1, 2)
    round_of(peers)
    assert peers.entries(ME) == peers.entries(PEER)
    assert peers.entries(ME) == [Entry(digest(1), Kind.DATA, at(2), at(4), at(3))]


def test_pages_keep_memory_bounded_whatever_the_number_of_objects() -> None:
    peers = Peers()
    for number in range(150):
        peers.put((ME,) if number % 3 == 0 else (PEER,) if number % 3 == 1 else (ME, PEER), number, 1, 0, number % 5)
    peers.put((ME,), 999, 1, 1)
    peers.put((ME, PEER), 998, 1, 2)
    round_of(peers, (0, 1, 2), Terms(limits=SMALL))
    assert peers.entries(ME) == peers.entries(PEER)
    assert max(len(m.objects) for _, m in peers.moves) <= SMALL.moves
    asked = [m for _, m, _ in peers.said]
    assert max(len(m.suffixes) for m in asked if isinstance(m, AskEntries)) <= SMALL.suffixes
    assert max(len(m.partitions) for m in asked if isinstance(m, Compare)) <= SMALL.partitions
    moved = [p.entry.digest for _, m in peers.moves for p in m.objects]
    assert len(moved) == len(set(moved)) == 101


def test_a_neighbour_that_is_no_primary_is_given_nothing_but_is_taken_from() -> None:
    peers = Peers(strangers={PEER})
    peers.put((ME,), 1, 1)
    peers.put((PEER,), 2, 1)
    round_of(peers)
    assert [m.pull for _, m in peers.moves] == [True]
    assert peers.told == [Repaired(PEER, 0, behind=0, unsent=1, withheld=1)]


def test_what_is_refused_is_counted_and_keeps_nothing_else_back() -> None:
    peers = Peers()
    for number in (1, 2):
        peers.put((ME,), number, 1)
        peers.put((PEER,), number + 2, 1)

    def refuse(move: Move) -> list[MoveOutcome]:
        return [MoveOutcome.REFUSED, MoveOutcome.OVERTAKEN]

    peers.on_move = refuse
    round_of(peers)
    assert peers.told == [Repaired(PEER, 0, behind=1, unsent=1)]


def test_a_neighbour_s_failure_ends_the_session_and_what_was_repaired_stays() -> None:
    peers = Peers()
    peers.put((ME,), 1, 1, 0)
    peers.put((ME,), 1, 1, 1)
    calls: list[Move] = []

    def lost_at_second(move: Move) -> None:
        calls.append(move)
        if len(calls) == 2:
            raise NodeTimeout("lost")

    peers.on_move = lost_at_second
    session = neighbour_session(Terms(mode=LIGHTSYNC), PEER, (0, 1, 2))
    peers.drive(ME, session)
    assert isinstance(session.error, NodeTimeout)
    assert peers.told == [Repaired(PEER, 0)]
    assert peers.entries(PEER, 0) == peers.entries(ME, 0)


def test_the_local_device_s_failure_ends_it_too() -> None:
    peers = Peers()
    peers.device(ME).failing = True
    session = neighbour_session(Terms(), PEER, (0,))
    peers.drive(ME, session)
    assert isinstance(session.error, DeviceFailed)
    assert peers.said == []


BAD = Entry(digest(1, 5), Kind.DATA, at(1))


@pytest.mark.parametrize(
    "answers",
    [
        [Entries(0, 1, True, False, ())],
        [Roots(0, 1, ())],
        [Roots(0, 1, (bytes(16),) * 2)],
        [Roots(0, 1, (bytes(16),)), Suffixes(0, 1, ())],
        [Roots(0, 1, (bytes(16),)), Suffixes(0, 1, (SuffixHashes(1, True, {}),))],
        [Roots(0, 1, (bytes(16),)), Suffixes(0, 1, (SuffixHashes(0, True, {}), SuffixHashes(1, True, {})))],
        [Entries(0, 1, True, True, ())],
        [Entries(0, 1, True, False, (BAD,))],
        [Entries(0, 1, True, False, (Entry(digest(1), Kind.DATA, at(1)),) * 2)],
        [Entries(0, 1, True, False, (Entry(digest(2), Kind.DATA, at(1)), Entry(digest(1), Kind.DATA, at(1))))],
    ],
)
def test_answers_that_do_not_fit_are_refused(answers: list[Message]) -> None:
    peers = Peers()
    peers.put((ME,), 1, 1)
    session = neighbour_session(Terms(), PEER, (0,))
    effect = session.resume(None, NOW_S)
    if len(answers) == 1 and isinstance(answers[0], Entries) and (answers[0].entries or answers[0].more):
        answers = [Roots(0, 1, (bytes(16),)), Suffixes(0, 1, (SuffixHashes(0, True, {}),)), *answers]
    for _ in range(20):
        if effect is None:
            break
        observation = answers.pop(0) if type(effect).__name__ == "Ask" else peers._look(ME, effect)
        effect = session.resume(observation, NOW_S)
    assert isinstance(session.error, WireError)
