"""Small objects of a policy with 4+2 take as many bytes on devices as `docs/guide/erasure-coding.md` says."""

from __future__ import annotations

import random
from pathlib import Path

import swiftlet_native

from e2e.standalone.cluster import start_cluster
from e2e.standalone.wire import Client

OBJECTS = 300
LEAST, MOST = 1024, 10_240
"""Bytes of a small object."""
VOLUME_BYTES = 1 << 20
ROUNDS = 3
"""Opening a store seals the volume that was written last, so each round compacts one more."""


def live_bytes(devices: Path) -> int:
    """Bytes that count on the devices of a store that has stopped, once they are compacted."""
    live = 0
    for root in sorted(devices.glob("d*")):
        for _ in range(ROUNDS):
            store = swiftlet_native.Store(root, volume_bytes=VOLUME_BYTES, live_share=0.999, threads=False)
            while store.compact():
                pass
            volumes = store.volumes()
            store.close()
        live += sum(live for *_, live in volumes)
    return live


def test_objects_of_some_kilobytes_take_less_than_two_bytes_for_each_byte(tmp_path: Path) -> None:
    dice = random.Random(1)
    sizes = [dice.randint(LEAST, MOST) for _ in range(OBJECTS)]
    cluster = start_cluster(tmp_path, "--policies", "usual,coded=4+2")
    try:
        client = Client(cluster.endpoint, cluster.user, cluster.key)
        assert client.call("PUT", "c", {"X-Storage-Policy": "coded"}).status == 201
        for number, size in enumerate(sizes):
            assert client.call("PUT", f"c/{number}", {}, dice.randbytes(size)).status == 201
    finally:
        assert cluster.stop() == 0
    assert 1.9 <= live_bytes(tmp_path / "devices") / sum(sizes) < 2.0
