"""Which devices of a ring a container server takes for its own."""

from __future__ import annotations

from typing import Any

import pytest

from swiftlet.main.local_devices import local_devices
from swiftlet.ring import Device
from swiftlet.settings import ContainerSection


def device(host: str, port: int = 6300, name: str = "a") -> Device:
    return Device(0, "name", host, port, name, "r", "z", "n", 1.0)


@pytest.mark.parametrize(
    ("settings", "own", "foreign"),
    [
        ({}, ["listing-0", "listing-0.listing.ns.svc"], ["listing-1.listing.ns.svc", "listing-01", "127.0.0.1"]),
        ({"host": "127.0.0.1"}, ["127.0.0.1"], ["listing-0", "127.0.0.2"]),
        ({"ring_host": "node7.example.org"}, ["node7.example.org"], ["listing-0", "node7"]),
    ],
)
def test_hosts(settings: dict[str, Any], own: list[str], foreign: list[str]) -> None:
    is_local = local_devices(ContainerSection(devices=("a", "b"), **settings), machine="listing-0")
    assert all(is_local(device(host)) for host in own)
    assert not any(is_local(device(host)) for host in foreign)
    assert not is_local(device(own[0], port=6301))
    assert not is_local(device(own[0], name="c"))
