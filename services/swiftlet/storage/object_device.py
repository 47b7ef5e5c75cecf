"""One device as the object server holds it: store, threads, rows on their way out."""

from __future__ import annotations

from dataclasses import dataclass

from swiftlet.errors import NodeBusy
from swiftlet.peers import RowUpdate
from swiftlet.storage.metrics import DEVICE_FREE, DEVICE_TOTAL, DEVICE_UP, OUTBOX_LENGTH
from swiftlet.storage.pool import DevicePool
from swiftlet.storage.row_updates import RowSender
from swiftlet.store.protocol import Store


@dataclass(frozen=True, slots=True)
class ObjectDevice:
    """A device and what works on it."""

    name: str
    store: Store
    pool: DevicePool
    rows: RowSender

    def check_outbox(self, row: RowUpdate | None) -> None:
        """NodeBusy when a row that can't be delivered could not be kept either."""
        if row is not None and self.rows.outbox.full:
            raise NodeBusy(f"device {self.name} has too many listing rows waiting for their container servers")

    async def measure(self) -> None:
        """Show the device's fullness in the metrics; DeviceFailed when it can't be asked."""
        usage = await self.pool.run(self.store.usage)
        DEVICE_TOTAL.labels(self.name).set(usage.total_bytes)
        DEVICE_FREE.labels(self.name).set(usage.free_bytes)
        DEVICE_UP.labels(self.name).set(1)
        OUTBOX_LENGTH.labels(self.name).set(len(self.rows.outbox))
