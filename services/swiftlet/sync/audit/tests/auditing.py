"""Auditors of a whole cluster in one process."""

from __future__ import annotations

from collections.abc import Sequence

from swiftlet.model import DatabaseId, DatabaseName, ObjectRow
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, HASH_PATH, MemoryCluster
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.sync.audit.looking import Copies, Objects
from swiftlet.sync.audit.moves import InForce, always
from swiftlet.sync.audit.objects import ObjectsAudit
from swiftlet.sync.audit.pace import AuditSettings
from swiftlet.sync.audit.rows import RowsAudit

NOW_S = 100_000.0
SETTINGS = AuditSettings(rows_per_s=0.0, share=1.0, min_age_s=60.0)


class Auditors:
    """Both walks of every device."""

    def __init__(self, cluster: MemoryCluster, now_s: float = NOW_S, in_force: InForce = always) -> None:
        self.cluster = cluster
        rings, listings = cluster.rings, cluster.listing_transport
        copies = Copies(cluster.transport, rings.objects)
        objects = Objects(lambda _policy: copies, HASH_PATH)
        self.now_s = now_s

        def now() -> float:
            return self.now_s

        self.rows = [
            RowsAudit(listings, objects, one_of(device), rings.container, HASH_PATH, SETTINGS, now, in_force)
            for device in cluster.devices
        ]
        self.objects = [
            ObjectsAudit(
                cluster.transport,
                listings,
                objects,
                one_of(device),
                rings.objects,
                rings.container,
                HASH_PATH,
                SETTINGS,
                now,
                in_force,
            )
            for device in cluster.devices
        ]

    async def run_once(self) -> int:
        """A pass of each; how many wrong rows were found."""
        found = 0
        for rows in self.rows:
            found += await rows.run_once()
        for objects in self.objects:
            found += await objects.run_once([0])
        return found


class one_of:
    """Picks one device of a ring."""

    def __init__(self, device: Device) -> None:
        self._id = device.id

    def __call__(self, ring: Ring) -> Sequence[Device]:
        return [device for device in ring.devices if device is not None and device.id == self._id]


def container_id(cluster: MemoryCluster) -> DatabaseId:
    """The container's database."""
    any_store = next(iter(cluster.databases.values()))
    return any_store.id_of(cluster.container_partition(), DatabaseName(ACCOUNT, CONTAINER))


async def rows_of(cluster: MemoryCluster, device: Device) -> dict[str, ObjectRow]:
    """The live rows of one replica."""
    page = await cluster.listing_transport.compare_rows(device, container_id(cluster), "", "", b"")
    assert page is not None
    return {row.name: row for row in page.rows if isinstance(row, ObjectRow) and not row.deleted}
