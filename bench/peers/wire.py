"""Bytes on loopback by node, counted by the kernel: IP and TCP headers, acknowledgements and handshakes included.

Each node has an address of its own, and every packet to or from it counts once. Needs a network namespace of its own
(`unshare --net`), so that nothing of the machine's own rules is touched and nobody else's packets are counted.

Fault model injected here: `cut` makes a node unreachable; packets to it vanish, as if its power had failed.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

HEADER_BYTES = 52
"""IPv4 and TCP headers of one packet, with the timestamps that Linux sends."""


def address_of(node: int) -> str:
    """Return the address of a node."""
    return f"127.0.1.{node + 1}"


@dataclass(frozen=True)
class Traffic:
    """The bytes and packets that were sent over the network."""

    bytes: int
    packets: int

    @property
    def payload(self) -> int:
        """Bytes without the headers of IP and TCP, nearly: handshakes have some more options."""
        return max(0, self.bytes - self.packets * HEADER_BYTES)

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.bytes + other.bytes, self.packets + other.packets)


@dataclass(frozen=True)
class Pass:
    """One full pass of one node's replicator."""

    others: Traffic
    """Between the node and the others."""
    local: Traffic
    """The traffic of a node with itself over loopback."""
    seconds: float
    """From the command to its end, start of Python included; of a replicator that goes on, from the end of the pass
    before, so that all that passes between two passes counts.
    """
    round_s: float
    """The seconds of a round as the replicator reports them."""
    cpu_s: float
    """Processor seconds of the replicator and of the servers of all nodes."""
    moved: int
    failed: int


@dataclass(frozen=True)
class Ended:
    """What a replicator that goes on has said of its last pass."""

    number: int
    """How many passes it has done."""
    round_s: float = 0.0
    moved: int = 0
    failed: int = 0


class Wire:
    """Counters of `nodes` addresses."""

    def __init__(self, nodes: int) -> None:
        """Put the loopback device up, and the counters in."""
        _run(["ip", "link", "set", "lo", "up"])
        lines = ["add table ip peers", "flush table ip peers"]
        lines.append("add chain ip peers out { type filter hook output priority 0; }")
        lines.append("add chain ip peers in { type filter hook input priority 0; }")
        for node in range(nodes):
            lines.append(f"add counter ip peers n{node}")
            lines += [f"add rule ip peers out ip {way} {address_of(node)} counter name n{node} accept" for way in _WAYS]
        _run(["nft", "-f", "-"], "\n".join(lines))

    def take(self) -> list[Traffic]:
        """What was counted since the last time, by node."""
        found = json.loads(_run(["nft", "-j", "reset", "counters"]))["nftables"]
        counters = {item["counter"]["name"]: item["counter"] for item in found if "counter" in item}
        return [Traffic(counters[name]["bytes"], counters[name]["packets"]) for name in _names(len(counters))]

    def cut(self, node: int) -> None:
        """Drop all packets to a node."""
        _run(["nft", "add", "rule", "ip", "peers", "in", "ip", "daddr", address_of(node), "drop"])

    def mend(self) -> None:
        _run(["nft", "flush", "chain", "ip", "peers", "in"])


_WAYS = ("daddr", "saddr")


def _names(number: int) -> list[str]:
    return [f"n{node}" for node in range(number)]


def _run(command: Sequence[str], text: str | None = None) -> str:
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
