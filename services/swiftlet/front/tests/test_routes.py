"""What the front is told of devices, and of container servers, and when addresses are looked up."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from swiftlet.errors import NodeUnreachable, Unavailable
from swiftlet.front.routes import CodedRoutes, ContainerRoutes, Routes
from swiftlet.placement.rings import Rings
from swiftlet.placement.tests.cluster import make_ring
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Coding, Device


class FakeFront:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[list[str | None]] = []
        """The peers of each device, each time; an empty list when nothing is known any more."""
        self.silent: list[int] = []

    def route_containers(self, _power: int, _rows: list[bytes], devices: list[tuple[str, str] | None]) -> None:
        self.told.append([None if device is None else device[0] for device in devices])

    def unroute_containers(self) -> None:
        self.told.append([])

    def silent_containers(self) -> list[int]:
        silent, self.silent = self.silent, []
        return silent


class FakeRings:
    """A ring, or none."""

    def __init__(self) -> None:
        self.ring: Ring | None = make_ring(3)

    def container(self) -> Ring:
        if self.ring is None:
            raise Unavailable("no ring")
        return self.ring


class FakePeers:
    """Peers are named by the address that a device has."""

    def __init__(self) -> None:
        self.addresses = {f"h{number}": f"address of h{number}" for number in range(3)}
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def peer(self, device: Device) -> str:
        self.asked.append(device.host)
        await self.gate.wait()
        if device.host not in self.addresses:
            raise NodeUnreachable("its name does not resolve")
        return self.addresses[device.host]

    def forget(self, device: Device) -> None:
        self.asked.append(f"not {device.host}")


@pytest.fixture
async def made() -> tuple[ContainerRoutes, FakeFront, FakeRings, FakePeers]:
    front, rings, peers = FakeFront(), FakeRings(), FakePeers()
    return ContainerRoutes(cast("Any", front), cast("Rings", rings), cast("Any", peers)), front, rings, peers


async def settle(routes: ContainerRoutes) -> None:
    """Look twice, with time for what is looked up in between."""
    for _ in range(2):
        routes.refresh()
        for _ in range(20):
            await asyncio.sleep(0)


Made = tuple[ContainerRoutes, FakeFront, FakeRings, FakePeers]


async def test_servers_are_looked_up_once_and_told_once(made: Made) -> None:
    routes, front, _, peers = made
    for _ in range(3):
        await settle(routes)
    assert front.told == [[None] * 3, list(peers.addresses.values())]
    assert sorted(peers.asked) == ["h0", "h1", "h2", "not h0", "not h1", "not h2"]


async def test_one_that_does_not_resolve_is_tried_again(made: Made) -> None:
    routes, front, _, peers = made
    address = peers.addresses.pop("h1")
    await settle(routes)
    assert front.told[-1] == ["address of h0", None, "address of h2"]
    peers.addresses["h1"] = address
    await settle(routes)
    assert front.told[-1] == ["address of h0", address, "address of h2"]


async def test_one_that_has_failed_is_looked_up_again(made: Made) -> None:
    """Also one that fails while others are looked up; nothing is told as long as nothing has changed."""
    routes, front, _, peers = made
    await settle(routes)
    count = len(front.told)
    front.silent = [2]
    peers.asked.clear()
    await settle(routes)
    assert peers.asked == ["not h2", "h2"]
    assert len(front.told) == count
    peers.gate.clear()
    front.silent = [0]
    await settle(routes)
    peers.addresses["h1"], front.silent = "moved", [1]
    await settle(routes)
    peers.gate.set()
    await settle(routes)
    await settle(routes)
    assert front.told[count:] == [["address of h0", "moved", "address of h2"]]


async def test_rings_that_change_and_go_away(made: Made) -> None:
    routes, front, rings, _ = made
    await settle(routes)
    rings.ring = make_ring(2, replicas=2)
    routes.refresh()
    assert front.told[-1] == ["address of h0", "address of h1"]
    rings.ring = None
    count = len(front.told)
    for _ in range(2):
        routes.refresh()
    assert front.told[count:] == [[]]
    rings.ring = make_ring(3)
    routes.refresh()
    assert front.told[-1] == ["address of h0", "address of h1", "address of h2"]


async def test_the_end_does_not_wait_for_what_is_looked_up(made: Made) -> None:
    routes, front, _, peers = made
    peers.gate.clear()
    routes.refresh()
    await asyncio.sleep(0)
    await routes.close()
    assert front.told == [[None] * 3]


class PolicyFront:
    """Notes what it is told of policies."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.failed: list[tuple[int, int]] = []

    def route(
        self, policy: int, _power: int, rows: list[bytes], devices: list[tuple[str, str] | None], *how: object
    ) -> None:
        self.told.append((policy, len(rows), [None if device is None else device[0] for device in devices], how[-1]))

    def route_coded(self, policy: int, _power: int, rows: list[bytes], devices: object, *how: object) -> None:
        self.told.append((policy, len(rows), devices, how[0]))

    def unroute(self, policy: int) -> None:
        self.told.append(policy)

    def avoid(self, policy: int, numbers: list[int]) -> None:
        self.told.append((policy, numbers))

    def unreached(self) -> list[tuple[int, int]]:
        failed, self.failed = self.failed, []
        return failed


class CodedPeersOfTest:
    """Devices are an object, until something has changed."""

    def __init__(self) -> None:
        self.found = "devices"
        self.forgotten: list[int] = []

    async def devices(self, _policy: int, _ring: Ring) -> str:
        await asyncio.sleep(0)
        return self.found

    def forget(self, device: Device) -> None:
        self.forgotten.append(device.id)


class CodedRing:
    """The ring of a policy, or none."""

    ring: Ring | None = make_ring(4, replicas=3)

    def objects(self, _policy: int) -> Ring:
        if self.ring is None:
            raise Unavailable("no ring")
        return self.ring


class KnownPeers:
    """Peers are named by their devices' hosts, once they are known."""

    def __init__(self) -> None:
        self.hosts = {"h0", "h2"}
        self.found: set[str] = set()
        """Hosts whose addresses can be found."""

    def native_peer(self, device: Device) -> str | None:
        return device.host if device.host in self.hosts else None

    async def peer(self, device: Device) -> str:
        await asyncio.sleep(0)
        if device.host not in self.found:
            raise NodeUnreachable("its name does not resolve")
        self.hosts.add(device.host)
        return device.host


async def test_a_policy_is_told_with_its_peers_and_who_is_avoided() -> None:
    front, peers, rings, avoided = PolicyFront(), KnownPeers(), CodedRing(), {2}
    routes = Routes(cast("Any", front), cast("Rings", rings), cast("Any", peers), lambda device: device.id in avoided)

    async def told() -> list[object]:
        """What is told once what is not known was looked up."""
        front.told.clear()
        for _ in range(2):
            routes.refresh()
            for _ in range(20):
                await asyncio.sleep(0)
        return list(front.told)

    assert await told() == [], "nobody has asked"
    routes.tell(7)
    assert front.told == [(7, 3, ["h0", None, "h2", None], [2])]
    assert await told() == []
    avoided.add(0)
    assert await told() == [(7, [0, 2])]
    assert await told() == []
    avoided.clear()
    peers.found = {"h1", "h2"}
    assert await told() == [(7, []), (7, 3, ["h0", "h1", "h2", None], [])]
    peers.hosts.remove("h2")
    assert (await told())[-1] == (7, 3, ["h0", "h1", "h2", None], []), "one that was forgotten"
    rings.ring = None
    assert [await told() for _ in range(2)] == [[7], []]
    await routes.close()


async def test_a_coded_policy_is_told_with_its_devices_and_who_is_avoided() -> None:
    front, peers, rings = PolicyFront(), CodedPeersOfTest(), CodedRing()
    coding, avoided, packs = Coding(2, 1, 1024), set[int](), [0]
    routes = CodedRoutes(
        cast("Any", front),
        cast("Rings", rings),
        cast("Any", peers),
        lambda device: device.id in avoided,
        codings=lambda policy: coding if policy == 7 else None,
        pack_below=lambda _policy: packs[0],
    )

    async def refreshed() -> list[object]:
        front.told.clear()
        await routes.found()
        routes.refresh()
        await routes.found()
        return list(front.told)

    assert (routes.has(7), routes.has(0)) == (True, False)
    assert await refreshed() == [], "nobody has asked"
    routes.tell(7)
    assert await refreshed() == [(7, 3, "devices", (2, 1, 1024, False))]
    assert await refreshed() == []
    avoided.add(2)
    assert await refreshed() == [(7, [2])]
    assert await refreshed() == []
    peers.found = "other devices"
    assert await refreshed() == [(7, 3, "other devices", (2, 1, 1024, False)), (7, [2])]
    packs[0] = 1000
    assert await refreshed() == [(7, 3, "other devices", (2, 1, 1024, True)), (7, [2])]
    front.failed = [(7, 1), (7, 9), (8, 0)]
    assert await refreshed() == []
    assert peers.forgotten == [1]
    rings.ring = None
    assert [await refreshed() for _ in range(2)] == [[7], []]
    rings.ring = make_ring(4, replicas=2)
    assert await refreshed() == [], "too few devices for each object"
    await routes.close()
