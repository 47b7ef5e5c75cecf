"""Rows that come to a store's container servers without their objects."""

from __future__ import annotations

import json
from collections.abc import Sequence

from e2e.standalone.cluster import Cluster
from swiftlet.model import ObjectRow
from swiftlet.names import HashPath
from swiftlet.ring.codec import load
from swiftlet.transport.http_client import NodeClient
from swiftlet.transport.http_listing import HttpListingTransport
from swiftlet.transport.signing import ClusterKey

_BATCH = 1000


async def bring_rows(cluster: Cluster, account: str, container: str, rows: Sequence[ObjectRow]) -> None:
    """Bring rows to all holders of a container, as object servers do."""
    etc = cluster.data / "etc"
    ring = load(next(cluster.data.rglob("container.ring")))
    suffix = json.loads((etc / "secrets.json").read_text())["hash_path_suffix"]
    partition = ring.partition_of(HashPath(b"", suffix.encode())(account, container))
    transport = HttpListingTransport(NodeClient(key=ClusterKey((etc / "cluster.key").read_bytes().strip())))
    try:
        for holder in ring.primaries(partition):
            for start in range(0, len(rows), _BATCH):
                await transport.update_rows(holder, partition, account, container, rows[start : start + _BATCH])
    finally:
        await transport.close()
