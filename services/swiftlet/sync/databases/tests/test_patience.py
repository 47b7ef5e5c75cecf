"""When a database that differs is worked on."""

from __future__ import annotations

from array import array

from swiftlet.model import DatabaseId, DatabaseKind
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.sync.databases.entries import POLICIES
from swiftlet.sync.databases.patience import GRACE_S, IMPATIENT, Limits, Patience, Word
from swiftlet.sync.planning.device_partitions import DevicePartitions, Places
from swiftlet.sync.planning.standing import Standing

DEVICES = [Device(id, f"device-{id}", "h", 1 + id, f"d{id}", "r", f"z{id}", f"n{id}", 1.0) for id in range(2)]
RING = Ring(1, 1, 2, DEVICES, [array("H", [0, 0]), array("H", [1, 1])])
ID = DatabaseId(DatabaseKind.CONTAINER, 0, b"x" * 16)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def a_share(checked: bool = True) -> DevicePartitions:
    standing = Standing()
    standing.begin(RING, [0], 0, [0, 1])
    if checked:
        standing.compared_all([0, 1], checked=True)
    return DevicePartitions(DEVICES[0], POLICIES[DatabaseKind.CONTAINER], Places(RING, DEVICES[0]), standing)


def words(
    patience: Patience, clock: Clock, own: DevicePartitions, fingerprints: list[bytes], pause_s: float = 5.0
) -> list[Word]:
    """What is said in one round after the other."""
    found = []
    for fingerprint in fingerprints:
        patience.begin()
        found.append(patience.judge(own, 1, ID, fingerprint))
        clock.now_s += pause_s
    return found


def test_what_stands_still_is_worked_on_in_the_next_round() -> None:
    clock = Clock()
    assert words(Patience(clock=clock), clock, a_share(), [b"1", b"1"]) == [Word.WAIT, Word.GO]


def test_what_keeps_changing_is_waited_for_but_not_for_ever() -> None:
    clock = Clock()
    said = words(Patience(clock=clock), clock, a_share(), [b"%d" % n for n in range(8)])
    assert said == [Word.WAIT] * 6 + [Word.GO] * 2, "after 30 s"


def test_what_was_never_in_order_does_not_wait() -> None:
    clock = Clock()
    assert words(Patience(clock=clock), clock, a_share(checked=False), [b"1"]) == [Word.GO]
    assert words(Patience(IMPATIENT, clock), clock, a_share(), [b"1"]) == [Word.GO]


def test_what_agreed_meanwhile_is_waited_for_anew() -> None:
    clock, own = Clock(), a_share()
    patience = Patience(clock=clock)
    words(patience, clock, own, [b"%d" % n for n in range(5)])
    patience.begin()
    patience.begin()
    assert words(patience, clock, own, [b"9"]) == [Word.WAIT]


def test_what_took_long_rests_and_is_told_after_a_while() -> None:
    clock, own = Clock(), a_share()
    patience = Patience(Limits(effort=0.1), clock)
    patience.worked(own, 1, ID, 20.0, agreed=True)
    assert words(patience, clock, own, [b"1", b"1"], GRACE_S) == [Word.WAIT, Word.OVERDUE]
    clock.now_s += 200
    assert words(patience, clock, own, [b"1"]) == [Word.GO]


def test_what_failed_is_never_left_alone_silently() -> None:
    clock, own = Clock(), a_share()
    patience = Patience(Limits(effort=0.1), clock)
    patience.worked(own, 1, ID, 20.0, agreed=False)
    assert words(patience, clock, own, [b"1"]) == [Word.OVERDUE]
    patience.worked(own, 1, ID, 0.1, agreed=True)
    clock.now_s += 1000
    assert words(patience, clock, own, [b"2"]) == [Word.WAIT]


def test_what_agreed_and_rests_is_no_fault_while_a_third_replica_is_away() -> None:
    clock, own = Clock(), a_share(checked=False)
    patience = Patience(Limits(effort=0.1), clock)
    patience.worked(own, 1, ID, 20.0, agreed=True)
    assert words(patience, clock, own, [b"1", b"2", b"2"], GRACE_S / 2) == [Word.WAIT, Word.WAIT, Word.OVERDUE]


def test_other_peers_and_devices_do_not_wait_for_it() -> None:
    clock, own = Clock(), a_share()
    patience = Patience(Limits(effort=0.1), clock)
    patience.worked(own, 1, ID, 20.0, agreed=True)
    patience.begin()
    patience.judge(own, 7, ID, b"1")
    clock.now_s += 5
    assert patience.judge(own, 7, ID, b"1") is Word.GO
    assert patience.judge(own, 1, ID, b"1") is Word.WAIT
