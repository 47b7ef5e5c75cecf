"""Which devices of the rings are a server's own, by the address in its settings."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial

from swiftlet.ring.holders import IsLocal
from swiftlet.ring.model import Device
from swiftlet.settings import ContainerSection, ObjectSection

_ALL_INTERFACES = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared, not bound

Section = ContainerSection | ObjectSection


def known_host(section: Section) -> str | None:
    """Return the server's host as the rings name it, if the settings have it."""
    return section.ring_host or (section.host if section.host not in _ALL_INTERFACES else None)


def ring_host(section: Section) -> str:
    """Return this server's host as the rings name it, as far as it is known."""
    return known_host(section) or socket.gethostname()


def local_devices(section: Section, machine: str | None = None) -> IsLocal:
    """Return a function that tells whether a ring's device is this server's.

    `machine` is the host name, this machine's if None.
    """
    return partial(_is_local, section, known_host(section), machine or socket.gethostname())


def hosts_of(section: Section, machine: str | None = None) -> Callable[[str], bool]:
    """Return a function that tells whether a HOST:PORT that a request was signed for is this server.

    `machine` is as for `local_devices`.
    """
    known, name = known_host(section), machine or socket.gethostname()

    def is_ours(authority: str) -> bool:
        host, _, port = authority.rpartition(":")
        return port == str(section.port) and _is_host(host.removeprefix("[").removesuffix("]"), known, name)

    return is_ours


def _is_host(host: str, known: str | None, machine: str) -> bool:
    if known is not None:
        return host == known
    return host == machine or host.startswith(f"{machine}.")


def _is_local(section: Section, known: str | None, machine: str, device: Device) -> bool:
    if device.port != section.port or device.device not in section.devices:
        return False
    return _is_host(device.host, known, machine)
