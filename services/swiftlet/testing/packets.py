"""TCP packets with payload: those that the loopback device carries, and those that the system counts."""

from __future__ import annotations

import os
import socket
import stat
import struct
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass

_ALL_PROTOCOLS = 3
_TCP = 6
_RCVBUFFORCE = 33
"""Of Linux: more than is allowed to who is not root."""
_DATA_SEGMENTS = struct.Struct("@152xII")
"""Of Linux's `struct tcp_info`: segments with data that came in, and that went out."""


@dataclass(frozen=True, slots=True)
class Packet:
    """What a packet carried, and between which ports."""

    source: int
    target: int
    payload: bytes


class Sniffer(threading.Thread):
    """Keeps what goes over the loopback device from and to some ports, in its order.

    Raises PermissionError for who is not root.
    """

    def __init__(self, ports: Collection[int]) -> None:
        """Begin to listen for packets of these ports; `start` begins to keep them."""
        super().__init__()
        self._ports = frozenset(ports)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.ntohs(_ALL_PROTOCOLS))
        self._socket.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, 64 << 20)
        self._socket.bind(("lo", 0))
        self._last = os.urandom(16)
        self.heard: list[Packet] = []

    def run(self) -> None:
        """Keep packets until `stop`."""
        with self._socket:
            while True:
                packet, address = self._socket.recvfrom(1 << 17)
                if self._last in packet:
                    return
                # Each is seen twice: going out and coming in.
                if address[2] != socket.PACKET_OUTGOING and (found := self._packet(packet)) is not None:
                    self.heard.append(found)

    def stop(self) -> None:
        """Return when it has seen all that went over the device until now; others may go on using that."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mark:
            while self.is_alive():
                mark.sendto(self._last, ("127.0.0.1", 9))
                self.join(0.2)

    def _packet(self, packet: bytes) -> Packet | None:
        """Return a TCP packet with payload."""
        if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != _TCP:
            return None
        start = (packet[0] & 15) * 4
        source, target = struct.unpack_from(">HH", packet, start)
        payload = packet[start + (packet[start + 12] >> 4) * 4 :]
        return Packet(source, target, payload) if payload and {source, target} & self._ports else None


def round_trips(packets: Iterable[Packet], clients: Collection[int]) -> int:
    """Return how often somebody at these ports sent after having been sent something, or for the first time."""
    trips, waits = 0, False
    for packet in packets:
        if packet.source in clients:
            trips += not waits
            waits = True
        elif packet.target in clients:
            waits = False
    return trips


def data_segments(port: int) -> tuple[int, int]:
    """Return how many packets with payload this process has sent to a port and received from it.

    The system counts them; those of all connections to that port that are open are added up.
    """
    sent = received = 0
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            with socket.socket(fileno=os.dup(number)) as sock:
                if sock.type != socket.SOCK_STREAM or sock.family != socket.AF_INET or sock.getpeername()[1] != port:
                    continue
                told = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _DATA_SEGMENTS.size)
        except OSError:
            continue  # It was closed meanwhile, or is not connected.
        came, went = _DATA_SEGMENTS.unpack(told)
        sent, received = sent + went, received + came
    return sent, received
