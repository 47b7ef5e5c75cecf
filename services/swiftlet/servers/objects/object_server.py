"""The object server over HTTP: requests of replicators and proxies about the devices of one process, and their upkeep.

Objects come and go over the native transport (`swiftlet.servers.objects.native_server`). The caller builds everything
else: stores, the sink for listing rows, the cluster's key. `add_object_routes` adds the routes to an application that
has its health checks, metrics page and middleware from elsewhere.

Fault model: one device may be full, slow, failing or gone while the others serve; each has its own threads and
admission. A device that is not among ours answers like a failed one, so that callers go elsewhere.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from swiftlet_native import Doubts

from swiftlet.errors import DeviceFailed, SwiftletError
from swiftlet.servers.objects.doubts import doubt_fields, judge
from swiftlet.servers.objects.metrics import RECLAIMED
from swiftlet.servers.objects.object_device import ObjectDevice
from swiftlet.servers.objects.object_requests import at_work, guarded
from swiftlet.servers.objects.object_sync import ObjectSync
from swiftlet.servers.objects.pending_delivery import DeliveryTimes, Describing, PendingDelivery, RowSink
from swiftlet.servers.objects.pending_updates import PendingUpdates
from swiftlet.servers.objects.pool import DevicePool
from swiftlet.servers.objects.sync_stream import SyncEndpoint
from swiftlet.servers.shared.device_status import DeviceStatus
from swiftlet.servers.shared.json_requests import Answer, parsed, read_signed
from swiftlet.servers.shared.sync_answers import PlacedBy
from swiftlet.store.protocol import Store
from swiftlet.timestamp import Timestamp
from swiftlet.transport.object_messages import doubt_json, judge_path, verdict_from
from swiftlet.transport.signing import ClusterKey
from swiftlet.transport.wire import MAX_JSON_BODY
from swiftlet.web.logs import get_logger

_LOOK_S = 1.0
"""Seconds between two looks at what is to be delivered, at most."""
RECLAIM_PERIOD_S = 3600.0
"""Seconds between two removals of old tombstones."""
_log = get_logger("object")


@dataclass(frozen=True, slots=True)
class ObjectServerSettings:
    """The limits and waits of an object server."""

    threads_per_device: int = 4
    """The number of threads for each device; more of them help fast devices with deep queues."""
    max_requests_per_device: int = 512
    """Messages of replicators in progress on one device; above it callers get 503 and try again later.

    This bounds memory, as each message may hold about one MiB.
    """
    row_wait_s: float = 2.0
    """Seconds within which a container server has to answer about a row."""
    row_interval_s: float = 5.0
    """Seconds between deliveries of what is pending; also the first pause after a failed one."""
    reclaim_age_s: float = 7 * 86400.0
    """Seconds for which tombstones are kept, and after which a pending row is dropped if its container does
    not exist.
    """


class ObjectServer:
    """Serves the requests about the devices of one process."""

    def __init__(
        self,
        devices: Mapping[str, Store],
        row_sink: RowSink,
        settings: ObjectServerSettings | None = None,
        key: ClusterKey | None = None,
        now_s: Callable[[], float] = time.time,
        unused: Mapping[str, str] | None = None,
        pending: Mapping[str, PendingUpdates] | None = None,
        placed: Mapping[str, PlacedBy] | None = None,
        doubts: Mapping[str, Doubts] | None = None,
        packed: Describing | None = None,
    ) -> None:
        """`devices` are given by name; the caller closes their stores.

        `now_s` returns seconds since the epoch. `unused` has devices that can't be used, and why. `pending` has the
        updates of devices whose stores keep rows; `placed` tells where rings put devices, for those in any ring;
        `doubts` has what devices may have missed; `packed` tells of objects that are in packs.
        """
        self.settings = settings or ObjectServerSettings()
        self._key = key
        self._now_s = now_s
        self._unused = dict(unused or {})
        self._pending = pending or {}
        self._doubts = doubts or {}
        self._packed = packed
        self._devices = {name: self._device(name, store, row_sink) for name, store in devices.items()}
        self.sync_endpoint = SyncEndpoint(key, ObjectSync(self._devices, placed or {}).respond)
        """Return the endpoint that answers replicators."""

    def _device(self, name: str, store: Store, sink: RowSink) -> ObjectDevice:
        settings = self.settings
        pool = DevicePool(name, settings.threads_per_device, settings.max_requests_per_device)
        times = DeliveryTimes(settings.row_wait_s, settings.row_interval_s, settings.reclaim_age_s)
        updates = self._pending.get(name)
        delivery = None
        if updates is not None:
            delivery = PendingDelivery(name, store, updates, pool, sink, times, self._now_s, self._packed)
        doubts = self._doubts.get(name) or Doubts()
        return ObjectDevice(name, store, pool, DeviceStatus(name), delivery, doubts)

    def status(self) -> dict[str, object]:
        """Return the field `devices` of the status report."""
        unknown = dict.fromkeys(doubt_fields(Doubts()))
        unused = {
            name: {
                **DeviceStatus(name, reason).fields(),
                "pending": None,
                "pendingOldestSeconds": None,
                **unknown,
            }
            for name, reason in self._unused.items()
        }
        return {**unused, **{name: device.fields() for name, device in self._devices.items()}}

    @property
    def devices(self) -> Mapping[str, ObjectDevice]:
        """The devices, by name."""
        return self._devices

    async def run_background(self, _app: web.Application) -> AsyncIterator[None]:
        """Tend and measure the devices until shutdown, then end their threads; for `app.cleanup_ctx`."""
        tasks = [asyncio.create_task(work(device)) for device in self._devices.values() for work in self._upkeep]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for device in self._devices.values():
            await asyncio.to_thread(device.pool.close)

    @property
    def _upkeep(self) -> tuple[Callable[[ObjectDevice], Coroutine[Any, Any, None]], ...]:
        return self._deliver_pending, self._forget_old, self._watch

    async def _watch(self, device: ObjectDevice) -> None:
        await device.status.watch(device.measure)

    async def _forget_old(self, device: ObjectDevice) -> None:
        """Remove old tombstones of a device every period until cancelled, first at a random moment within one."""
        await asyncio.sleep(RECLAIM_PERIOD_S * random.random())  # noqa: S311
        while True:
            try:
                await self.reclaim(device)
            except (SwiftletError, OSError) as error:
                _log.error("old tombstones could not be reclaimed", device=device.name, error=str(error))
            except Exception:
                _log.exception("reclaiming old tombstones failed unexpectedly", device=device.name)
            await asyncio.sleep(RECLAIM_PERIOD_S)

    async def reclaim(self, device: ObjectDevice) -> int:
        """Remove tombstones older than the reclaim age; return how many.

        The age is rounded down to whole periods, so that all replicas of a partition remove the same ones.
        """
        before_s = (self._now_s() - self.settings.reclaim_age_s) // RECLAIM_PERIOD_S * RECLAIM_PERIOD_S
        gone = await device.pool.run(device.store.reclaim, Timestamp.at(max(0.0, before_s)))
        RECLAIMED.labels(device.name).inc(gone)
        return gone

    async def _deliver_pending(self, device: ObjectDevice) -> None:
        """Deliver the pending rows of the device until cancelled; a failed attempt is followed by the next one."""
        while device.pending is not None:
            try:
                await device.pending.deliver()
            except (SwiftletError, OSError) as error:
                _log.error("pending updates could not be delivered", device=device.name, error=str(error))
            except Exception:
                _log.exception("the delivery of pending updates failed unexpectedly", device=device.name)
            # Rows that only the device delivers, those of guests, are not to wait for long.
            await asyncio.sleep(min(_LOOK_S, self.settings.row_interval_s))

    # -- requests --------------------------------------------------------------------------------------------

    def routes(self) -> list[web.RouteDef]:
        return [web.post(judge_path("{device}"), guarded("judge", self._judge))]

    async def _judge(self, request: web.Request) -> Answer:
        verdict = verdict_from(parsed(await read_signed(request, MAX_JSON_BODY, self._key)))
        name = request.match_info["device"]
        device = self._devices.get(name)
        if device is None:
            raise DeviceFailed(f"device {name} is not served here; is the ring newer than this server?")
        with at_work(device.pool):
            judge(device.doubts, verdict)
            return doubt_json(device.doubts.pending())


def add_object_routes(app: web.Application, server: ObjectServer) -> None:
    """Put the object server's routes and its background work into an application."""
    app.add_routes(server.routes())
    server.sync_endpoint.add_to(app)
    app.cleanup_ctx.append(server.run_background)
