"""Settings, rings and a user for services on two machines: proxy and metadata server on one, the others on another.

    .venv/bin/python hack/rdma.d/two_machines.py FOLDER STORAGE-ADDRESS PROXY-ADDRESS

Times are an emulated machine's, not a real one's.
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

OBJECT_PORT, CONTAINER_PORT, PROXY_PORT, METADATA_PORT = 6200, 6300, 8080, 8090
USER, KEY = "test:tester", "testing"


def write_ring(path: Path, host: str, port: int, device: str) -> None:
    """A ring of one device."""
    builder = RingBuilder(4, 1, min_part_hours=0)
    builder.add_device(name=device, host=host, port=port, device=device, region="r", zone="z", weight=1)
    builder.rebalance(int(time.time() // 3600))
    save(builder.ring, path)


def settings(folder: Path, storage: str, proxy: str) -> dict[str, Any]:
    """One file for all services."""
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
    }


def main(folder: Path, storage: str, proxy: str) -> None:
    """Write the rings, settings and users of the store."""
    (folder / "rings").mkdir()
    write_ring(folder / "rings" / "account.ring", storage, CONTAINER_PORT, "c0")
    write_ring(folder / "rings" / "container.ring", storage, CONTAINER_PORT, "c0")
    write_ring(folder / "rings" / "object-0.ring", storage, OBJECT_PORT, "d0")
    account, user = USER.split(":")
    users = [{"account": account, "user": user, "roles": ["admin"], "secret_hash": hash_secret(KEY)}]
    (folder / "users.yaml").write_text(yaml.safe_dump(users))
    (folder / "swiftlet.yaml").write_text(yaml.safe_dump(settings(folder, storage, proxy)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
