"""What of a round's work comes next."""

from __future__ import annotations

import pytest

from swiftlet.sync.agenda import Agenda
from swiftlet.sync.cases import Errand
from swiftlet.sync.failures.neighbours import node_of
from swiftlet.sync.session.queue import Homeward
from swiftlet.sync.share import Share
from swiftlet.sync.tests.shares import share_of

SIZE = 4


@pytest.fixture
def share() -> Share:
    """Of device 0 among four."""
    return share_of(4, devices=4)


def left_of(agenda: Agenda) -> list[Errand]:
    found = []
    while (one := agenda.next(alone=True)) is not None:
        assert isinstance(one, Errand)
        found.append(one)
    return found


def test_each_partition_once_and_so_many_at_a_time(share: Share) -> None:
    agenda = Agenda(lambda share: SIZE, ())
    agenda.compare(share, 1, list(range(10)), differ=True, late=set())
    agenda.compare(share, 2, [20, 21], differ=False, late=set())
    assert agenda
    errands = left_of(agenda)
    assert not agenda
    assert sorted(len(one.partitions) for one in errands) == [2, 2, 4, 4]
    assert sorted(p for one in errands if one.peer.id == 1 for p in one.partitions) == list(range(10))
    assert {(one.peer.id, one.differs) for one in errands} == {(1, True), (2, False)}


def test_who_is_back_comes_first_and_what_a_former_life_did_last(share: Share) -> None:
    for _ in range(20):
        agenda = Agenda(lambda share: SIZE, [node_of(share.device_of(3))])
        for peer in (1, 2, 3):
            agenda.compare(share, peer, [1, 2], differ=False, late={2})
        errands = [(one.peer.id, one.partitions[0]) for one in left_of(agenda)]
        assert errands[:2] == [(3, 1), (3, 2)]
        assert {partition for _, partition in errands[2:4]} == {1}


def test_what_comes_back_meanwhile_comes_first(share: Share) -> None:
    agenda = Agenda(lambda share: SIZE, ())
    for peer in (1, 2, 3):
        agenda.compare(share, peer, [5], differ=False, late=set())
    agenda.first |= {node_of(share.device_of(2))}
    assert left_of(agenda)[0].peer.id == 2


def test_what_failed_is_tried_again_before_anything_else(share: Share) -> None:
    agenda = Agenda(lambda share: SIZE, ())
    failed = Errand(share, share.device_of(1), False, [7])
    agenda.go_home([(share, Homeward(3, (1, 2, 3)))])
    agenda.compare(share, 2, [5], differ=False, late=set())
    agenda.retry(failed)
    assert agenda.next(alone=True) is failed


def test_handoffs_go_home_in_between_and_those_of_who_is_back_first(share: Share) -> None:
    homes = [Homeward(partition, (1, 2, 3)) for partition in range(8)]
    agenda = Agenda(lambda share: SIZE, ())
    agenda.compare(share, 1, list(range(8)), differ=False, late=set())
    agenda.go_home((share, home) for home in homes[1:])
    agenda.go_home_first([(share, homes[0])])
    assert agenda.homes[0] == (share, homes[0])
    found = [agenda.next(alone=True) for _ in range(10)]
    assert agenda.next(alone=True) is None
    assert sum(isinstance(one, Errand) for one in found) == 2
    assert {one[1].partition for one in found if isinstance(one, tuple)} == set(range(8))


def test_small_pieces_are_gathered_while_others_are_at_work(share: Share) -> None:
    agenda = Agenda(lambda share: SIZE, ())
    agenda.compare(share, 1, [1], differ=False, late=set(), gather=True)
    assert agenda
    assert agenda.next(alone=False) is None
    agenda.compare(share, 1, [2, 3], differ=False, late=set(), gather=True)
    agenda.compare(share, 2, [1], differ=False, late=set(), gather=True)
    assert sorted(sorted(one.partitions) for one in left_of(agenda)) == [[1], [1, 2, 3]]
    assert not agenda


def test_they_wait_for_no_more_than_a_session_holds_or_than_they_are_told_to(share: Share) -> None:
    agenda = Agenda(lambda share: SIZE, ())
    agenda.compare(share, 1, [1, 2], differ=False, late=set(), gather=True)
    agenda.compare(share, 1, [3, 4], differ=False, late=set(), gather=True)
    whole = agenda.next(alone=False)
    assert isinstance(whole, Errand)
    assert sorted(whole.partitions) == [1, 2, 3, 4]
    agenda.compare(share, 1, [5], differ=False, late=set(), gather=True)
    assert agenda.next(alone=False) is None
    agenda.ripen()
    late = agenda.next(alone=False)
    assert isinstance(late, Errand)
    assert late.partitions == [5]
