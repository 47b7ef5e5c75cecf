"""Settings, rings and a user for services on two machines: proxy and metadata server on one, the others on another.

    .venv/bin/python hack/rdma.d/two_machines.py FOLDER STORAGE-ADDRESS PROXY-ADDRESS [OBJECT-SERVERS]

Each object server has one device, which holds a replica of every object. With three of them there is a policy with
erasure coding as well. Times are an emulated machine's, not a real one's.
"""

from __future__ import annotations

import secrets
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from swiftlet.auth.users import hash_secret
from swiftlet.ring import RingBuilder
from swiftlet.ring.codec import save
from swiftlet.testing.ways.upkeep import CODED, CODING, GOLD

OBJECT_PORT, CONTAINER_PORT, REPLICATOR_PORT, PROXY_PORT, METADATA_PORT = 6200, 6300, 6400, 8080, 8090
USER, KEY = "test:tester", "testing"


def write_ring(path: Path, host: str, devices: dict[str, int]) -> None:
    """Write a ring of devices, by their servers' ports, each of which has a replica of everything."""
    builder = RingBuilder(4, len(devices), min_part_hours=0)
    for number, (device, port) in enumerate(devices.items()):
        builder.add_device(name=device, host=host, port=port, device=device, region="r", zone=f"z{number}", weight=1)
    builder.rebalance(int(time.time() // 3600))
    save(builder.ring, path)


def settings(folder: Path, storage: str, proxy: str, objects: dict[str, int]) -> dict[str, Any]:
    """One file for all services; `objects` are the object devices and the ports of their servers."""
    policies: list[dict[str, Any]] = [{"name": "gold", "index": GOLD, "default": True}]
    if len(objects) == CODING.data + CODING.parity:
        coding = {"data": CODING.data, "parity": CODING.parity, "cell_bytes": CODING.cell_bytes}
        policies.append({"name": "coded", "index": CODED, "coding": coding})
    return {
        "cluster": {
            "key": secrets.token_hex(32),
            "hash_path_suffix": secrets.token_hex(16),
            "rings": str(folder / "rings"),
            "native_pool_bytes": 64 << 20,
            "rdma": "required",
            "peer_silence_s": 20.0,
            "direct_access": True,
        },
        "policies": policies,
        "quota": {"file": str(folder / "quota.yaml"), "check_interval_s": 1},
        "auth": {"users_file": str(folder / "users.yaml"), "token_life_s": 86_400},
        "proxy": {
            "host": proxy,
            "port": PROXY_PORT,
            "management_port": PROXY_PORT + 1,
            "connect_timeout_s": 30,
            "answer_timeout_s": 120,
            "row_wait_s": 60,
        },
        "metadata": {
            "host": proxy,
            "port": METADATA_PORT,
            "connect_timeout_s": 30,
            "answer_timeout_s": 120,
        },
        "object": {
            "host": storage,
            "port": OBJECT_PORT,
            "devices_dir": "/srv/devices",
            "devices": ["d0"],
            "reserve_bytes": 0,
            "connect_timeout_s": 30,
            "answer_timeout_s": 120,
        },
        "container": {
            "host": storage,
            "port": CONTAINER_PORT,
            "devices_dir": "/srv/devices",
            "devices": ["c0"],
            "reserve_bytes": 0,
            "connect_timeout_s": 30,
            "answer_timeout_s": 120,
        },
        "replicator": {
            "host": storage,
            "port": REPLICATOR_PORT,
            "devices": [f"{storage}:{port}/{device}" for device, port in objects.items()],
            "interval_s": 3,
        },
        "expirer": {"interval_s": 2, "delay_s": 0},
    }


def main(folder: Path, storage: str, proxy: str, servers: int) -> None:
    """Write the rings, settings, quotas and users of the store."""
    (folder / "rings").mkdir()
    for name in ("account", "container"):
        write_ring(folder / "rings" / f"{name}.ring", storage, {"c0": CONTAINER_PORT})
    objects = {f"d{number}": OBJECT_PORT + number for number in range(servers)}
    for policy in (GOLD, CODED):
        write_ring(folder / "rings" / f"object-{policy}.ring", storage, objects)
    (folder / "quota.yaml").write_text("precise: true\nlevels: {default: {}}\n")
    account, user = USER.split(":")
    users = [{"account": account, "user": user, "roles": ["admin"], "secret_hash": hash_secret(KEY)}]
    (folder / "users.yaml").write_text(yaml.safe_dump(users))
    (folder / "swiftlet.yaml").write_text(yaml.safe_dump(settings(folder, storage, proxy, objects)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else 1)
