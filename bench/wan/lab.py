"""Regions as network namespaces, and the router between them.

A region is a namespace `wan-NAME` with one address, on a TUN device whose other end the router has. Traffic within a
region does not leave the namespace. It takes root and `ip` (iproute2), and no module of the kernel but `tun`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bench.peers.processes import Processes
from bench.wan.control import ask
from bench.wan.join import DEVICE
from e2e.standalone.cluster import environment

ROOT = Path(__file__).parents[2]
ROUTER = ROOT / "native" / "target" / "release" / "swiftlet-wan"
_NETWORK = "10.77.0.0/16"


@dataclass(frozen=True, slots=True)
class Link:
    """Both directions of a link: what a packet waits for, in milliseconds and 10^6 bits per second."""

    delay_ms: float
    rate_mbit: float
    jitter_ms: float = 0.0
    loss_percent: float = 0.0
    queue_ms: float = 50.0
    """How long the queue of a full link delays a packet; what is beyond is dropped."""

    def command(self, sender: str, receiver: str) -> str:
        """Return the router's command for one direction."""
        # A queue of less than some packets would drop each burst.
        queue_kib = max(64.0, self.rate_mbit * 1e6 / 8 * self.queue_ms / 1e3 / 1024)
        return (
            f"link {sender} {receiver} delay_ms={self.delay_ms} rate_mbit={self.rate_mbit} jitter_ms={self.jitter_ms} "
            f"queue_kib={queue_kib:.0f} loss_percent={self.loss_percent}"
        )


Links = Mapping[tuple[str, str], Link]


class Lab:
    """Regions and links, from entering the block to its end."""

    def __init__(self, directory: Path, regions: Sequence[str], links: Links, congestion: str = "cubic") -> None:
        """Use a directory for sockets and logs; `congestion` is the congestion control of TCP in all regions."""
        self.regions = tuple(regions)
        self.router = directory / "router"
        self.processes = Processes(directory / "log")
        self._links = links
        self._congestion = congestion

    def __enter__(self) -> Self:
        """Make the namespaces, start the router, and shape the links."""
        try:
            self.router.unlink(missing_ok=True)
            self.processes.start("router", ["nice", "-n", "-15", str(ROUTER), str(self.router)])
            self.processes.wait_until(self.router.exists, f"the router makes {self.router}")
            # A link that waits for a processor is another link than was asked for.
            self.processes.prefer("router")
            for number, region in enumerate(self.regions, 1):
                self._make(region, number)
            for (one, other), link in self._links.items():
                for sender, receiver in ((one, other), (other, one)):
                    ask(self.router, link.command(sender, receiver))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End what runs in the regions, and remove them."""
        self.processes.stop()
        for region in self.regions:
            subprocess.run(["ip", "netns", "delete", namespace(region)], capture_output=True, check=False)
        self.router.unlink(missing_ok=True)

    def address(self, region: str) -> str:
        """Return the address of a region."""
        return f"10.77.{self.regions.index(region) + 1}.1"

    def start(self, region: str, name: str, command: Sequence[str]) -> None:
        """Start a process in a region; it ends with the lab."""
        self.processes.start(name, [*inside(region), *command], environment())

    def fetch(self, region: str, url: str) -> str | None:
        """Return what is at a URL, as a region sees it; None when there is no answer of 200."""
        code = f"import urllib.request as r; print(r.urlopen({url!r}, timeout=5).read().decode())"
        done = subprocess.run(
            [*inside(region), sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        return done.stdout if done.returncode == 0 else None

    def listens(self, region: str, port: int) -> bool:
        """Return whether somebody listens at a port of a region's address; it is looked up, not tried."""
        table = subprocess.run([*inside(region), "cat", "/proc/net/tcp"], capture_output=True, text=True, check=False)
        return f":{port:04X} 00000000:0000 0A " in table.stdout

    def _make(self, region: str, number: int) -> None:
        space, address = namespace(region), f"10.77.{number}.1"
        # What another lab of this name has left behind when it was killed.
        subprocess.run(["ip", "netns", "delete", space], capture_output=True, check=False)
        _run("ip", "netns", "add", space)
        _run("ip", "-n", space, "link", "set", "lo", "up")
        joining = [sys.executable, "-m", "bench.wan.join", str(self.router), region, f"10.77.{number}.0/24"]
        _run(*inside(region), *joining)
        _run("ip", "-n", space, "address", "add", f"{address}/32", "dev", DEVICE)
        # Queues are the links'. One here would drop bursts whenever the router waits for a processor.
        _run("ip", "-n", space, "link", "set", DEVICE, "txqueuelen", "20000")
        _run("ip", "-n", space, "link", "set", DEVICE, "up")
        # By route: the system-wide setting can't always be changed.
        _run("ip", "-n", space, "route", "add", _NETWORK, "dev", DEVICE, "src", address, "congctl", self._congestion)


def namespace(region: str) -> str:
    """Return the name of a region's network namespace."""
    return f"wan-{region}"


def inside(region: str) -> list[str]:
    """Return what goes before a command that is to run in a region."""
    return ["ip", "netns", "exec", namespace(region)]


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
