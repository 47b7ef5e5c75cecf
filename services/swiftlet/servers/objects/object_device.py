"""One device of the object server: its store, its threads, its pending updates, and what it may have missed."""

from __future__ import annotations

from dataclasses import dataclass, field

from swiftlet_native import Doubts

from swiftlet.model import Usage
from swiftlet.servers.objects.doubts import doubt_fields
from swiftlet.servers.objects.metrics import (
    DEVICE_FREE,
    DEVICE_TOTAL,
    DEVICE_UNPROVED,
    DEVICE_UP,
    PENDING_OLDEST,
    PENDING_UPDATES,
    STORE_COUNTERS,
)
from swiftlet.servers.objects.pending_delivery import PendingDelivery
from swiftlet.servers.objects.pool import DevicePool
from swiftlet.servers.shared.device_status import DeviceStatus
from swiftlet.store.protocol import Store
from swiftlet.transport.native_metrics import Growth
from swiftlet.web.logs import get_logger

_log = get_logger("object")


@dataclass(frozen=True, slots=True)
class ObjectDevice:
    """A device, and the work in progress on it."""

    name: str
    store: Store
    pool: DevicePool
    status: DeviceStatus
    pending: PendingDelivery | None = None
    """Delivers the rows that are pending in the store."""
    doubts: Doubts = field(default_factory=Doubts)
    """What the device may have missed."""
    _growth: Growth = field(default_factory=Growth)

    async def measure(self) -> None:
        """Check the device, and update metrics and status."""
        usage = await self.status.look(self._usage)
        DEVICE_UP.labels(self.name).set(usage is not None)
        if self.pending is not None:
            PENDING_UPDATES.labels(self.name).set(self.pending.updates.count())
            PENDING_OLDEST.labels(self.name).set(self.pending.updates.oldest_s())
        if usage is not None:
            DEVICE_TOTAL.labels(self.name).set(usage.total_bytes)
            DEVICE_FREE.labels(self.name).set(usage.free_bytes)
        DEVICE_UNPROVED.labels(self.name).set(self.doubts.pending() is not None)
        self._take_counters()

    def _take_counters(self) -> None:
        for name, count in self.store.counters().items():
            more = self._growth.of(name, count)
            STORE_COUNTERS[name].labels(self.name).inc(more)
            if name == "quarantined" and more:
                _log.error("damaged records were found and set aside", device=self.name, records=more)

    async def _usage(self) -> Usage:
        return await self.pool.run(self.store.usage)

    def fields(self) -> dict[str, object]:
        """Return the fields of the status report."""
        updates = None if self.pending is None else self.pending.updates
        return {
            **self.status.fields(),
            "pending": None if updates is None else updates.count(),
            "pendingOldestSeconds": None if updates is None else round(updates.oldest_s(), 3),
            **doubt_fields(self.doubts),
        }
