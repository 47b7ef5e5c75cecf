"""Tells the front where the objects of a policy are: the ring, and the devices that it may ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from swiftlet_native import Front, TransportPeer

from swiftlet.errors import Unavailable
from swiftlet.placement.rings import Rings
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device


@runtime_checkable
class Peers(Protocol):
    """Knows which native peers serve devices."""

    def native_peer(self, device: Device) -> TransportPeer | None:
        """Return the peer that serves a device; None when it is not known yet."""
        ...


class Routes:
    """Informs the front of changes of rings and of devices that it may ask."""

    def __init__(self, front: Front, rings: Rings, peers: Peers, is_suppressed: Callable[[Device], bool]) -> None:
        """`is_suppressed` returns whether other devices should be asked first."""
        self._front = front
        self._rings = rings
        self._peers = peers
        self._is_suppressed = is_suppressed
        self._told: dict[int, tuple[Ring, list[TransportPeer | None]]] = {}

    def tell(self, policy: int) -> None:
        """Inform the front where the objects of the policy are, or that it is not known."""
        try:
            ring = self._rings.objects(policy)
        except Unavailable:
            if self._told.pop(policy, None) is not None:
                self._front.unroute(policy)
            return
        peers = [self._peer(device) for device in ring.devices]
        told = self._told.get(policy)
        if told is not None and told[0] is ring and told[1] == peers:
            return
        names = [None if device is None else device.device for device in ring.devices]
        devices = [
            None if peer is None or name is None else (peer, name) for peer, name in zip(peers, names, strict=True)
        ]
        self._front.route(policy, ring.part_power, [row.tobytes() for row in ring.rows], devices)
        self._told[policy] = ring, peers

    def refresh(self) -> None:
        """Inform the front again about all policies that it knows."""
        for policy in list(self._told):
            self.tell(policy)

    def _peer(self, device: Device | None) -> TransportPeer | None:
        if device is None or self._is_suppressed(device):
            return None
        return self._peers.native_peer(device)
