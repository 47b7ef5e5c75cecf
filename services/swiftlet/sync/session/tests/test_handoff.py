"""The return of a handoff: given to all primaries, dropped only with all their proofs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swiftlet.errors import NodeTimeout
from swiftlet.model import Kind
from swiftlet.sync.session.effects import Ask, Drop, HandoffReturned, Limits, Move, MoveOutcome, Terms
from swiftlet.sync.session.handoff import handoff_session
from swiftlet.sync.session.messages import AskEntries, AskSuffixes, Message, Suffixes
from swiftlet.sync.session.tests.world import NOW_S, Peers, at, digest
from swiftlet.sync.session.topology import MODES, Mode

HOME = (1, 2, 3)
ME = 0


def add_returns(peers: Peers, absent: tuple[int, ...] = (), terms: Terms | None = None) -> HandoffReturned:
    session = handoff_session(terms or Terms(), 0, HOME, absent)
    peers.drive(ME, session)
    assert session.error is None
    (told,) = peers.told
    peers.told = []
    assert isinstance(told, HandoffReturned)
    return told


def asked(peers: Peers) -> list[type[Message]]:
    return [type(message) for _, message, _ in peers.said if isinstance(message, AskSuffixes | AskEntries)]


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_it_goes_to_all_primaries_and_is_dropped(mode: Mode) -> None:
    peers = Peers()
    peers.put((ME, 1), 1, 1)
    peers.put((ME,), 2, 1)
    peers.delete((ME,), 3, 1)
    there = peers.entries(ME)
    assert add_returns(peers, terms=replace(Terms(), mode=mode)) == HandoffReturned(0, dropped=3, kept=0)
    assert peers.entries(ME) == []
    assert all(peers.entries(id_) == there for id_ in HOME)


def test_set_hashes_alone_prove_equality() -> None:
    peers = Peers()
    peers.put((ME, *HOME), 1, 1)
    assert add_returns(peers).dropped == 1
    assert asked(peers) == [AskSuffixes] * 3
    assert peers.moves == []


def test_nothing_is_dropped_while_a_primary_is_known_to_be_away_but_the_others_are_served() -> None:
    peers = Peers()
    peers.put((ME,), 1, 1)
    assert add_returns(peers, absent=(2,)) == HandoffReturned(0, dropped=0, kept=1)
    assert peers.entries(1) == peers.entries(3) == peers.entries(ME) != []
    assert 2 not in [peer for peer, *_ in peers.said]


def test_nothing_is_dropped_when_a_primary_does_not_answer() -> None:
    peers = Peers(silent={2})
    peers.put((ME, *HOME), 1, 1)
    assert add_returns(peers) == HandoffReturned(0, dropped=0, kept=1)


def test_nothing_is_dropped_for_a_device_that_is_no_primary_in_its_own_eyes() -> None:
    peers = Peers(strangers={3})
    peers.put((ME,), 1, 1)
    peers.put((ME, *HOME), 2, 1)
    assert add_returns(peers) == HandoffReturned(0, dropped=0, kept=2)
    assert len(peers.entries(1)) == len(peers.entries(2)) == 2
    assert len(peers.entries(3)) == 1


def test_what_a_primary_refuses_or_loses_on_the_way_is_kept() -> None:
    peers = Peers()
    peers.put((ME,), 1, 1)
    peers.put((ME, *HOME), 2, 1)
    peers.on_move = lambda move: [MoveOutcome.REFUSED] if move.peer == 2 else None
    assert add_returns(peers) == HandoffReturned(0, dropped=1, kept=1)
    assert [entry.digest for entry in peers.entries(ME)] == [digest(1)]

    def lost(move: Move) -> None:
        raise NodeTimeout("lost")

    peers.on_move = lost
    assert add_returns(peers) == HandoffReturned(0, dropped=0, kept=1)


def test_an_older_copy_is_dropped_and_never_sent() -> None:
    peers = Peers()
    peers.put((ME,), 1, 1)
    peers.put((1,), 1, 2)
    peers.delete((2,), 1, 3)
    peers.put((3,), 1, 2)
    assert add_returns(peers).dropped == 1
    assert peers.moves == []


def test_a_handoff_that_has_to_wait_takes_tombstones_and_nothing_else() -> None:
    peers = Peers()
    peers.put((ME,), 1, 1)
    peers.delete((1, 3), 1, 2)
    peers.put((ME,), 2, 1)
    peers.put((1, 3), 2, 2)
    peers.put((1,), 3, 1)
    assert add_returns(peers, absent=(2,)).dropped == 0
    found = {entry.digest: (entry.kind, entry.timestamp) for entry in peers.entries(ME)}
    assert found == {digest(1): (Kind.TOMBSTONE, at(2)), digest(2): (Kind.DATA, at(1))}
    assert all(move.pull and len(move.objects) == 1 for _, move in peers.moves)


def test_what_the_driver_keeps_for_a_pending_container_update_takes_tombstones_too() -> None:
    peers = Peers()
    peers.put((ME,), 1, 1)
    peers.delete(HOME, 1, 2)
    session = handoff_session(Terms(), 0, HOME)
    effect = session.resume(None, NOW_S)
    while effect is not None:
        effect = session.resume(0 if isinstance(effect, Drop) else peers._do(ME, effect), NOW_S)
    assert peers.told == [HandoffReturned(0, dropped=0, kept=1)]
    assert [(entry.kind, entry.timestamp) for entry in peers.entries(ME)] == [(Kind.TOMBSTONE, at(2))]


def test_what_was_dropped_gets_no_tombstone_because_of_what_stays() -> None:
    peers = Peers()
    peers.put((ME,), 1, 1)
    peers.delete(HOME, 1, 2)
    peers.put((ME,), 2, NOW_S - 5)
    assert add_returns(peers) == HandoffReturned(0, dropped=1, kept=1)
    assert [entry.digest for entry in peers.entries(ME)] == [digest(2)]
    assert peers.moves == []


def test_what_is_in_flight_is_kept_and_what_all_forgot_is_dropped() -> None:
    peers = Peers()
    peers.put((ME,), 1, NOW_S - 5)
    peers.delete((ME,), 2, NOW_S - 3000)
    terms = Terms(reclaim_age_s=2000.0, reclaim_period_s=100.0)
    assert add_returns(peers, terms=terms) == HandoffReturned(0, dropped=1, kept=1)
    assert peers.moves == []


def test_what_changes_after_the_proof_is_kept() -> None:
    peers = Peers()
    peers.put((ME, *HOME), 1, 1)
    session = handoff_session(Terms(), 0, HOME)
    effect = session.resume(None, NOW_S)
    while effect is not None:
        if isinstance(effect, Drop):
            peers.put((ME,), 1, 2)
        effect = session.resume(peers._do(ME, effect), NOW_S)
    assert peers.told == [HandoffReturned(0, dropped=0, kept=1)]
    assert [entry.timestamp for entry in peers.entries(ME)] == [at(2)]


def test_a_primary_that_answers_garbage_counts_as_away() -> None:
    peers = Peers()
    peers.put((ME, *HOME), 1, 1)
    session = handoff_session(Terms(), 0, HOME)
    effect = session.resume(None, NOW_S)
    while effect is not None:
        garbage = isinstance(effect, Ask) and effect.peer == 3
        effect = session.resume(Suffixes(0, 1, ()) if garbage else peers._do(ME, effect), NOW_S)
    assert peers.told == [HandoffReturned(0, dropped=0, kept=1)]


def test_many_objects_go_page_by_page() -> None:
    peers = Peers()
    for number in range(60):
        peers.put((ME,) if number % 2 else (ME, 1, 2), number, 1, 0, number % 7)
    assert add_returns(peers, terms=Terms(limits=Limits(2, 1, 2, 3, 2))) == HandoffReturned(0, dropped=60, kept=0)
    assert all(len(peers.entries(id_)) == 60 for id_ in HOME)
    assert max(len(move.objects) for _, move in peers.moves) <= 2
