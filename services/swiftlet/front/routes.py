"""Tells the front where objects and containers' databases are: the rings, and the devices that it may ask."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol, runtime_checkable

from swiftlet_native import CodedDevices, Front, TransportPeer

from swiftlet.errors import NodeError, Unavailable
from swiftlet.placement.coded import Codings, PackBelow, none_small, of_copies
from swiftlet.placement.copies import WriteQuorums, majority
from swiftlet.placement.plan import ANYWHERE, Place
from swiftlet.placement.rings import Rings
from swiftlet.placement.write_plan import writes_near
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Coding, Device, RingError


@runtime_checkable
class Peers(Protocol):
    """Knows which native peers serve devices."""

    def native_peer(self, device: Device) -> TransportPeer | None:
        """Return the peer that serves a device; None when it is not known yet."""
        ...

    async def peer(self, device: Device) -> TransportPeer:
        """Return the peer that serves a device, which is known from then on. Raises NodeError when its address can't be
        found.
        """
        ...


class CodedPeers(Protocol):
    """Finds the native peers of servers with coded objects."""

    async def devices(self, policy: int, ring: Ring) -> CodedDevices:
        """Return a ring's devices, those whose addresses can be found; the same object while nothing has changed."""
        ...

    def forget(self, device: Device) -> None:
        """Look the address up again before the next call."""
        ...


class ContainerPeers(Protocol):
    """Finds the native peers of container servers."""

    async def peer(self, device: Device) -> TransportPeer:
        """Return the peer that serves a device, whether it can be reached or not. Raises NodeError when its address is
        not known.
        """
        ...

    def forget(self, device: Device) -> None:
        """Look the address up again before the next call."""
        ...


_FINDS = 8
"""The number of addresses that are looked up at the same time."""


class _Lookups:
    """Looks addresses of devices up in the background."""

    def __init__(self, find: Callable[[Device], Awaitable[None]]) -> None:
        """`find` may raise NodeError: the device is looked up when somebody asks for that again."""
        self._find = find
        self._finding: asyncio.Task[None] | None = None

    @property
    def are_under_way(self) -> bool:
        """Whether nothing more can be looked up now."""
        return self._finding is not None

    def begin(self, devices: Collection[Device]) -> None:
        """Look devices up, unless others are being looked up."""
        if devices and self._finding is None:
            self._finding = asyncio.create_task(self._find_all(devices))

    async def _find_all(self, devices: Collection[Device]) -> None:
        room = asyncio.Semaphore(_FINDS)

        async def find(device: Device) -> None:
            async with room:
                with contextlib.suppress(NodeError):
                    await self._find(device)

        try:
            await asyncio.gather(*map(find, devices))
        finally:
            self._finding = None

    async def close(self) -> None:
        """End what is being looked up."""
        if self._finding is not None:
            self._finding.cancel()
            await asyncio.gather(self._finding, return_exceptions=True)


class Routes:
    """Informs the front of changes of rings and of devices that it may ask.

    Peers that are not known are looked up in the background: nobody else may need one that was forgotten when its
    server was restarted.
    """

    def __init__(
        self,
        front: Front,
        rings: Rings,
        peers: Peers,
        is_suppressed: Callable[[Device], bool],
        place: Place = ANYWHERE,
        quorums: WriteQuorums = majority,
    ) -> None:
        """`is_suppressed` returns whether other devices should be asked first; the nearest to `place` are read, and
        written where that is what `quorums` says.
        """
        self._front = front
        self._rings = rings
        self._peers = peers
        self._is_suppressed = is_suppressed
        self._place = place
        self._quorums = quorums
        self._told: dict[int, tuple[Ring, list[TransportPeer | None], bool]] = {}
        self._avoided: dict[int, list[int]] = {}
        """The numbers of devices that the front avoids, by policy."""
        self._lookups = _Lookups(self._find)

    def tell(self, policy: int) -> None:
        """Inform the front where the objects of the policy are, or that it is not known."""
        try:
            ring = self._rings.objects(policy)
        except Unavailable:
            if self._told.pop(policy, None) is not None:
                self._front.unroute(policy)
            return
        peers = [None if device is None else self._peers.native_peer(device) for device in ring.devices]
        avoided = [device.id for device in ring.devices if device is not None and self._is_suppressed(device)]
        is_near = self._quorums(policy) == "local" and writes_near(ring, self._place)
        told = self._told.get(policy)
        if told is not None and told[0] is ring and told[1:] == (peers, is_near):
            if avoided != self._avoided[policy]:
                self._front.avoid(policy, avoided)
                self._avoided[policy] = avoided
            return
        distances = _distances(ring, self._place)
        rows = [row.tobytes() for row in ring.rows]
        sites, here = _sites(ring, self._place)
        near = here if is_near else None
        self._front.route(policy, ring.part_power, [*rows], _devices(ring, peers), distances, sites, near, avoided)
        self._told[policy], self._avoided[policy] = (ring, peers, is_near), avoided

    def refresh(self) -> None:
        """Inform the front again about all policies that it knows."""
        for policy in list(self._told):
            self.tell(policy)
        lacking = {
            (device.host, device.port): device
            for ring, peers, _ in self._told.values()
            for device, peer in zip(ring.devices, peers, strict=True)
            if device is not None and peer is None
        }
        self._lookups.begin(lacking.values())

    async def _find(self, device: Device) -> None:
        await self._peers.peer(device)

    async def close(self) -> None:
        """End what is being looked up."""
        await self._lookups.close()


_Told = tuple[Ring, CodedDevices, Coding, bool]
"""A ring, its devices, the coding of the policy, and whether small objects are copies."""


class CodedRoutes:
    """Informs the front of the rings of coded policies, and of the devices that others are asked before.

    Python and the front read by the same `CodedDevices`: what one of them learns of a device the other one knows.
    """

    def __init__(
        self,
        front: Front,
        rings: Rings,
        peers: CodedPeers,
        is_avoided: Callable[[Device], bool],
        place: Place = ANYWHERE,
        codings: Codings = of_copies,
        pack_below: PackBelow = none_small,
    ) -> None:
        """`is_avoided` returns whether other devices are asked first; near `place` is asked before far from it. Objects
        of a policy of up to `pack_below` bytes are copies.
        """
        self._front = front
        self._rings = rings
        self._peers = peers
        self._is_avoided = is_avoided
        self._place = place
        self._codings = codings
        self._pack_below = pack_below
        self._told: dict[int, _Told | None] = {}
        """What the front was told of each policy for which somebody has asked; None while it knows nothing."""
        self._avoided: dict[int, list[int]] = {}
        self._finding: asyncio.Task[None] | None = None

    def has(self, policy: int) -> bool:
        """Return whether the policy's objects are coded."""
        return self._codings(policy) is not None

    def tell(self, policy: int) -> None:
        """Inform the front, soon, where the objects of a policy are."""
        self._told.setdefault(policy, None)
        self.refresh()

    def refresh(self) -> None:
        """Inform the front of what has changed since the last call."""
        if self._finding is None and self._told:
            self._finding = asyncio.create_task(self._find_all())
            self._finding.add_done_callback(self._found)

    async def found(self) -> None:
        """Return when what is being looked up was told."""
        if self._finding is not None:
            await asyncio.wait([self._finding])

    def _found(self, task: asyncio.Task[None]) -> None:
        self._finding = None
        if not task.cancelled():
            task.result()

    async def _find_all(self) -> None:
        for policy, number in self._front.unreached():
            told = self._told.get(policy)
            device = None if told is None or number >= len(told[0].devices) else told[0].devices[number]
            if device is not None:
                self._peers.forget(device)
        for policy in list(self._told):
            await self._find(policy)

    async def _find(self, policy: int) -> None:
        coding = self._codings(policy)
        try:
            ring = self._rings.objects(policy)
            if coding is not None:
                coding.check_ring(ring.part_power, ring.replica_count)
        except (Unavailable, RingError):
            coding = None
        if coding is None:
            if self._told[policy] is not None:
                self._told[policy] = None
                self._front.unroute(policy)
            return
        told = ring, await self._peers.devices(policy, ring), coding, self._pack_below(policy) > 0
        before = self._told[policy]
        if before is None or before[0] is not told[0] or before[1] is not told[1] or before[2:] != told[2:]:
            self._route(policy, *told)
            self._told[policy] = told
            self._avoided[policy] = []
        avoided = [device.id for device in ring.devices if device is not None and self._is_avoided(device)]
        if avoided != self._avoided[policy]:
            self._front.avoid(policy, avoided)
            self._avoided[policy] = avoided

    def _route(self, policy: int, ring: Ring, devices: CodedDevices, coding: Coding, has_small: bool) -> None:
        rows = [row.tobytes() for row in ring.rows]
        sites, _ = _sites(ring, self._place)
        told = coding.data, coding.parity, coding.cell_bytes, has_small
        self._front.route_coded(policy, ring.part_power, [*rows], devices, told, _distances(ring, self._place), sites)

    async def close(self) -> None:
        """End what is being looked up."""
        if self._finding is not None:
            self._finding.cancel()
            await asyncio.gather(self._finding, return_exceptions=True)


class ContainerRoutes:
    """Informs the front of the container ring, and of its servers' peers, which are looked up in the background.

    Whether a server has a native node is found out by the front.
    """

    def __init__(self, front: Front, rings: Rings, peers: ContainerPeers) -> None:
        """Nothing is told before `refresh`."""
        self._front = front
        self._rings = rings
        self._peers = peers
        self._found: dict[tuple[str, int], TransportPeer] = {}
        self._told: tuple[Ring, list[TransportPeer | None]] | None = None
        self._lookups = _Lookups(self._find)
        self._silent: set[int] = set()
        """Numbers of the servers that have failed since they were looked up."""

    def refresh(self) -> None:
        """Inform the front of what has changed since the last call, or that it is not known where containers are."""
        try:
            ring = self._rings.container()
        except Unavailable:
            if self._told is not None:
                self._told = None
                self._front.unroute_containers()
            return
        self._silent.update(self._front.silent_containers())
        if not self._lookups.are_under_way:
            wanted = [
                device
                for number, device in enumerate(ring.devices)
                if device is not None and (number in self._silent or (device.host, device.port) not in self._found)
            ]
            self._silent.clear()
            self._lookups.begin(wanted)
        self._tell(ring)

    def _tell(self, ring: Ring) -> None:
        peers = [None if device is None else self._found.get((device.host, device.port)) for device in ring.devices]
        if self._told is not None and self._told[0] is ring and self._told[1] == peers:
            return
        self._front.route_containers(ring.part_power, [row.tobytes() for row in ring.rows], _devices(ring, peers))
        self._told = ring, peers

    async def _find(self, device: Device) -> None:
        """Look up the address of a new server, or of one that has failed, which may have moved.

        Python delivers the rows of one that can't be found.
        """
        self._peers.forget(device)
        self._found[device.host, device.port] = await self._peers.peer(device)

    async def close(self) -> None:
        """End what is being looked up."""
        await self._lookups.close()


def _distances(ring: Ring, place: Place) -> list[int]:
    """Return how far away each device of a ring is."""
    return [0 if device is None else place.distance(device) for device in ring.devices]


def _sites(ring: Ring, place: Place) -> tuple[list[tuple[int, int, int, bool] | None], int]:
    """Return where each device of a ring is, by numbers as `Front.route` has them, and the number of the place's
    region.
    """
    numbers: dict[tuple[str | None, ...], int] = {}

    def number(*domain: str | None) -> int:
        return numbers.setdefault(domain, len(numbers))

    def site(device: Device) -> tuple[int, int, int, bool]:
        region, zone, node = device.region, device.zone, device.node
        return number(region), number(region, zone), number(region, zone, node), bool(device.weight)

    sites = [None if device is None else site(device) for device in ring.devices]
    return sites, number(place.region)


def _devices(ring: Ring, peers: list[TransportPeer | None]) -> list[tuple[TransportPeer, str] | None]:
    """Return the peer and the name of each of a ring's devices that has a peer."""
    return [
        None if peer is None or device is None else (peer, device.device)
        for peer, device in zip(peers, ring.devices, strict=True)
    ]
