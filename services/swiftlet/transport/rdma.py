"""Decides whether this process's native transport uses RDMA too, and tells the reason if not.

Whether a connection then uses it, the native side finds out for each connection (`docs/transport.md`); here it is
decided whether the process has RDMA at all.

Fault model: the build may have no RDMA, the machine no device, the container no right to it or to lock memory, and a
device may be there and not work. Where RDMA is required, each of these is a SettingsError that says what is missing;
elsewhere the process goes on by TCP, logs that once, and keeps the reason for its status report.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import structlog
import swiftlet_native
from prometheus_client import Gauge

from swiftlet.errors import SettingsError
from swiftlet.transport.modes import Mode

T = TypeVar("T")

SYS_DEVICES = Path("/sys/class/infiniband")
"""The directory in which the kernel lists RDMA devices, those of other containers too."""
DEV_DEVICES = Path("/dev/infiniband")
"""The directory of those that this process may open."""
_MAX_PORTS: Final = 256
"""The largest number of ports that are examined."""

_READY = Gauge(
    "swiftlet_transport_rdma_ready",
    "Processes whose native transport has opened an RDMA device; which peers are reached by it is "
    "swiftlet_transport_connected.",
    multiprocess_mode="livesum",
)
_log = structlog.get_logger("transport")


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """A port of an RDMA device, as the kernel lists it."""

    device: str
    port: str
    state: str
    """The state of the port, such as ACTIVE or DOWN; empty where the kernel does not tell."""
    link_layer: str
    """The link layer: InfiniBand or Ethernet (RoCE)."""

    def __str__(self) -> str:
        """Return the port's name as in UCX, with its state."""
        return f"{self.device}:{self.port} {self.state or 'state unknown'} {self.link_layer}".rstrip()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The requirements of RDMA, and which of them are met."""

    version: str | None
    """The version of UCX; None for a build without RDMA."""
    ports: tuple[RdmaPort, ...]
    openable: tuple[str, ...]
    """The names in `/dev/infiniband` by which devices are used."""
    locked_limit_bytes: int | None
    """The number of bytes of memory that may be locked; None when there is no limit."""


def look(sys_devices: Path = SYS_DEVICES, dev_devices: Path = DEV_DEVICES) -> Surroundings:
    """Return which requirements are met here; nothing is opened."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return Surroundings(
        version=swiftlet_native.rdma_version(),
        ports=tuple(_ports(sys_devices)),
        openable=tuple(_names(dev_devices, "uverbs*")),
        locked_limit_bytes=None if limit == resource.RLIM_INFINITY else limit,
    )


def _names(directory: Path, pattern: str) -> list[str]:
    # Without the directory there are no devices.
    return sorted(path.name for path in directory.glob(pattern))[:_MAX_PORTS]


def _ports(sys_devices: Path) -> list[RdmaPort]:
    found = [
        (device, port) for device in _names(sys_devices, "*") for port in _names(sys_devices / device / "ports", "*")
    ]
    return [_port(sys_devices, device, port) for device, port in found[:_MAX_PORTS]]


def _port(sys_devices: Path, device: str, port: str) -> RdmaPort:
    directory = sys_devices / device / "ports" / port
    return RdmaPort(device, port, _text(directory / "state").partition(":")[2].strip(), _text(directory / "link_layer"))


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        # The device has gone meanwhile, or does not tell.
        return ""


def why_not(there: Surroundings) -> str | None:
    """Return the reason why RDMA can't work and is not tried; None when it should be tried."""
    if there.version is None:
        return "swiftlet_native was built without RDMA; use the image that has it (build argument RDMA=1)"
    if not there.ports:
        return "the kernel lists no RDMA device (/sys/class/infiniband)"
    if not there.openable:
        return (
            "this process may open no RDMA device (/dev/infiniband); in Kubernetes ask for the device plugin's resource"
        )
    return None


@dataclass(frozen=True, slots=True)
class RdmaState:
    """The effect of the setting in this process."""

    mode: Mode
    missing: str | None
    """Why RDMA is not used; None when it is used, or was not wanted."""

    def status(self) -> dict[str, object]:
        """Return the field `rdma` of the status report."""
        return {"mode": self.mode, "ready": self.mode != "off" and self.missing is None, "missing": self.missing}


def start(
    mode: Mode, make: Callable[[bool], T], surroundings: Callable[[], Surroundings] = look
) -> tuple[T, RdmaState]:
    """Return the result of `make`, with RDMA (True) if that is wanted and works, otherwise without it.

    Raises SettingsError when RDMA is required and does not work, and OSError when `make` fails without RDMA too.
    """
    if mode == "off":
        return make(False), RdmaState(mode, None)
    missing = why_not(surroundings())
    if missing is None:
        try:
            made = make(True)
        except OSError as error:
            missing = error.strerror or str(error)
            log = _log.warning
        else:
            _READY.inc()
            _log.info("RDMA is used where peers have it")
            return made, RdmaState(mode, None)
    else:
        log = _log.info
    if mode == "required":
        raise SettingsError(f"cluster.rdma is required, and RDMA does not work here: {missing}")
    log("RDMA is not used", reason=missing)
    return make(False), RdmaState(mode, missing)
