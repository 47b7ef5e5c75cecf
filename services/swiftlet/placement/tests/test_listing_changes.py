"""What may be concluded from what container servers tell of changes, and from their silence."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import pytest

from swiftlet.boundaries.listings import ListingChange
from swiftlet.errors import NodeUnreachable
from swiftlet.model import DatabaseId, DatabaseKind
from swiftlet.names import HashPath
from swiftlet.placement import listing_changes
from swiftlet.placement.listing_changes import ListingChanges
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.servers.containers.change_log import ChangeLog

HASH_PATH = HashPath(b"x")
PLACE = "a", "c"
ID = DatabaseId(DatabaseKind.CONTAINER, 0, HASH_PATH(*PLACE))


@dataclass
class Servers:
    """Container servers with one device each, and a clock; a question takes a second."""

    logs: list[ChangeLog] = field(default_factory=lambda: [ChangeLog(kept=4) for _ in range(3)])
    silent: set[int] = field(default_factory=set)
    now_s: float = 100.0
    version: int = 1

    def ring(self) -> Ring:
        devices = [Device(n, f"d{n}", "h", 1 + n, f"d{n}", "r", f"z{n}", f"n{n}", 1.0) for n in range(len(self.logs))]
        return Ring(self.version, 1, 3, devices, tuple(array("H", [n, n]) for n in range(3)))

    async def changes(self, device: Device, epoch: str, number: int) -> ListingChange:
        self.now_s += 1.0
        if device.id in self.silent:
            raise NodeUnreachable("silent")
        epoch, number, containers = self.logs[device.id].since(epoch, number)
        found = None if containers is None else [bytes.fromhex(one) for one in containers]
        self.now_s += 1.0
        return ListingChange(epoch, number, found)


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
def known(servers: Servers) -> ListingChanges:
    return ListingChanges(servers.ring, servers, HASH_PATH, lambda: servers.now_s)


async def test_nothing_is_known_of_what_was_requested_before_the_first_answers(
    servers: Servers, known: ListingChanges
) -> None:
    asked_at = servers.now_s
    assert known.confirmed(PLACE, asked_at) == asked_at
    await known.ask()
    assert known.confirmed(PLACE, asked_at) == asked_at
    await known.ask()
    assert known.confirmed(PLACE, asked_at) == asked_at


async def test_what_nobody_has_changed_holds_until_most_were_asked(servers: Servers, known: ListingChanges) -> None:
    await known.ask()
    asked_at = servers.now_s
    servers.now_s += 10.0
    second = servers.now_s
    await known.ask()
    upto = known.confirmed(PLACE, asked_at)
    # The second of three questions, of which one may be missing: it was sent before any answer.
    assert second <= upto < servers.now_s
    servers.silent = {0}
    servers.now_s += 10.0
    third = servers.now_s
    await known.ask()
    assert known.confirmed(PLACE, asked_at) >= third
    servers.silent = {0, 1}
    servers.now_s += 10.0
    before = known.confirmed(PLACE, asked_at)
    await known.ask()
    assert known.confirmed(PLACE, asked_at) == before, "one of three may lack the change"


@pytest.mark.parametrize("holder", [0, 1, 2])
async def test_a_change_at_any_holder_counts(servers: Servers, known: ListingChanges, holder: int) -> None:
    await known.ask()
    asked_at = servers.now_s
    servers.logs[holder].note(ID)
    await known.ask()
    assert known.confirmed(PLACE, asked_at) == asked_at
    assert known.confirmed(("a", "other"), asked_at) > asked_at
    await known.ask()
    assert known.confirmed(PLACE, asked_at) == asked_at, "what was requested before the change stays old"
    asked_at = servers.now_s
    await known.ask()
    assert known.confirmed(PLACE, asked_at) > asked_at


async def test_who_has_restarted_or_forgotten_begins_anew(servers: Servers, known: ListingChanges) -> None:
    await known.ask()
    asked_at = servers.now_s
    servers.logs[0] = ChangeLog()
    for number in range(5):
        servers.logs[1].note(DatabaseId(DatabaseKind.CONTAINER, 0, HASH_PATH("a", str(number))))
    await known.ask()
    assert known.confirmed(PLACE, asked_at) == asked_at
    asked_at = servers.now_s
    await known.ask()
    assert known.confirmed(PLACE, asked_at) > asked_at


async def test_another_ring_begins_anew(servers: Servers, known: ListingChanges) -> None:
    await known.ask()
    asked_at = servers.now_s
    await known.ask()
    assert known.confirmed(PLACE, asked_at) > asked_at
    servers.version = 2
    assert known.confirmed(PLACE, asked_at) == asked_at
    await known.ask()
    await known.ask()
    assert known.confirmed(PLACE, asked_at) == asked_at


async def test_only_so_many_changes_are_remembered(
    servers: Servers, known: ListingChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_changes, "REMEMBERED", 2)
    await known.ask()
    asked_at = servers.now_s
    for number in range(3):
        servers.logs[0].note(DatabaseId(DatabaseKind.CONTAINER, 0, HASH_PATH("a", str(number))))
    await known.ask()
    for number in range(4):
        assert known.confirmed(("a", str(number)), asked_at) == asked_at
    asked_at = servers.now_s
    await known.ask()
    assert known.confirmed(("a", "0"), asked_at) > asked_at


async def test_too_many_servers_are_not_asked(
    servers: Servers, known: ListingChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_changes, "MOST_SERVERS", 2)
    began = servers.now_s
    await known.ask()
    await known.ask()
    assert servers.now_s == began
    assert known.confirmed(PLACE, began) == began


def test_a_log_tells_what_it_has_kept() -> None:
    log = ChangeLog(kept=3)
    epoch, number, containers = log.since("", 0)
    assert (number, containers) == (0, None)
    log.note(ID)
    log.note(DatabaseId(DatabaseKind.ACCOUNT, 0, HASH_PATH("a")))
    assert log.since(epoch, 0) == (epoch, 1, [ID.digest.hex()])
    assert log.since(epoch, 1) == (epoch, 1, [])
    assert log.since(epoch, 2) == (epoch, 1, None), "a number that it has not given"
    for _ in range(3):
        log.note(ID)
    assert log.since(epoch, 0) == (epoch, 4, None)
    assert log.since(epoch, 1) == (epoch, 4, [ID.digest.hex()] * 3)
