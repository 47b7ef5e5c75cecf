"""The object server: routes to the devices of one process.

Everything arrives already built: stores, the sink for listing rows, the cluster's key. `add_object_routes` puts
the routes into an application that has its health checks, metrics page and middleware from elsewhere;
`create_object_app` is a bare application with nothing else.

Fault model: one device may be full, slow, failing or gone while the others serve; each has its own threads,
admission and outbox. A device that is not among ours answers like a failed one, so that callers go elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from swiftlet_native import Doubts

from swiftlet.boundaries.objects import ContainerUpdate, UpdateOutcome, WriteReply
from swiftlet.errors import DeviceFailed, NotFound, SwiftletError
from swiftlet.model import ObjectInfo, ObjectKey, ObjectRow, PostRecord
from swiftlet.servers.objects.doubts import doubt_fields, judge
from swiftlet.servers.objects.frames import BodyReader
from swiftlet.servers.objects.metrics import RECLAIMED
from swiftlet.servers.objects.object_device import ObjectDevice
from swiftlet.servers.objects.object_get import get
from swiftlet.servers.objects.object_put import put
from swiftlet.servers.objects.object_requests import Handler, RequestGuard, at_work, json_answer, object_key
from swiftlet.servers.objects.object_sync import ObjectSync
from swiftlet.servers.objects.outbox import Outbox
from swiftlet.servers.objects.pending_delivery import DeliveryTimes, PendingDelivery
from swiftlet.servers.objects.pending_updates import PendingUpdates
from swiftlet.servers.objects.pool import DevicePool
from swiftlet.servers.objects.row_updates import RowSender, RowSink
from swiftlet.servers.objects.sync_stream import SyncEndpoint
from swiftlet.servers.shared.device_status import DeviceStatus
from swiftlet.servers.shared.sync_answers import PlacedBy, nowhere
from swiftlet.store.protocol import Store
from swiftlet.timestamp import Timestamp
from swiftlet.transport.object_messages import (
    JUDGE,
    PREFIX,
    REMOVE,
    delete_from,
    doubt_json,
    entry_from,
    entry_json,
    parse_index,
    post_from,
    reply_json,
    row_name,
    verdict_from,
)
from swiftlet.transport.signing import ClusterKey
from swiftlet.transport.wire import MAX_JSON_BODY, json_object

RECLAIM_PERIOD_S = 3600.0
"""Seconds between looks for tombstones that are old enough to be forgotten."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ObjectServerSettings:
    """The limits and waits of an object server."""

    threads_per_device: int = 4
    """Threads that work on one device; more helps fast devices with deep queues."""
    max_requests_per_device: int = 512
    """Requests at work on one device; above it callers get 503 and try another replica. Bounds memory: each may
    hold about one MiB."""
    idle_timeout_s: float = 30.0
    """Seconds that a peer may send or take nothing in the middle of a transfer."""
    row_wait_s: float = 2.0
    """Seconds that a write waits for its listing rows before they go into the outbox."""
    outbox_interval_s: float = 5.0
    """Seconds between attempts to empty the outboxes; also the first pause after a failed one."""
    reclaim_age_s: float = 7 * 86400.0
    """Seconds that tombstones are kept, and after which a waiting row is dropped when its container is answered to be
    missing."""


class ObjectServer:
    """The devices of one process and what can be asked of them."""

    def __init__(
        self,
        devices: Mapping[str, Store],
        outboxes: Mapping[str, Outbox],
        row_sink: RowSink,
        settings: ObjectServerSettings | None = None,
        key: ClusterKey | None = None,
        now_s: Callable[[], float] = time.time,
        unused: Mapping[str, str] | None = None,
        pending: Mapping[str, PendingUpdates] | None = None,
        placed: Mapping[str, PlacedBy] | None = None,
        doubts: Mapping[str, Doubts] | None = None,
    ) -> None:
        """`devices` and `outboxes` by device name, the same names in both; stores stay the caller's to close.

        `now_s` is the wall clock. `unused` are devices that can't be used, and why; `pending` are the updates of
        devices that keep their rows; `placed` is where rings put devices, for those that are in any; `doubts` is
        what devices may have missed, nothing for those without.
        """
        if devices.keys() != outboxes.keys():
            raise ValueError("every device needs a store and an outbox")
        self.settings = settings or ObjectServerSettings()
        self._guard = RequestGuard(key)
        self._now_s = now_s
        self._unused = dict(unused or {})
        self._pending = pending or {}
        self._placed = placed or {}
        self._doubts = doubts or {}
        self._devices = {name: self._device(name, store, outboxes[name], row_sink) for name, store in devices.items()}
        self.sync_endpoint = SyncEndpoint(key, ObjectSync(self._devices, self._placed).respond)
        """The endpoint that answers replicators."""

    def _device(self, name: str, store: Store, outbox: Outbox, sink: RowSink) -> ObjectDevice:
        settings = self.settings
        pool = DevicePool(name, settings.threads_per_device, settings.max_requests_per_device)
        rows = RowSender(sink, outbox, pool, settings.row_wait_s, settings.reclaim_age_s, settings.outbox_interval_s)
        times = DeliveryTimes(settings.row_wait_s, settings.outbox_interval_s, settings.reclaim_age_s)
        updates = self._pending.get(name)
        delivery = None if updates is None else PendingDelivery(name, store, updates, pool, sink, times, self._now_s)
        doubts = self._doubts.get(name) or Doubts()
        return ObjectDevice(name, store, pool, rows, DeviceStatus(name), delivery, doubts)

    def status(self) -> dict[str, object]:
        """The `devices` of the status report."""
        unknown = dict.fromkeys(doubt_fields(Doubts()))
        unused = {
            name: {
                **DeviceStatus(name, reason).fields(),
                "outbox": None,
                "pending": None,
                "pendingOldestSeconds": None,
                **unknown,
            }
            for name, reason in self._unused.items()
        }
        return {**unused, **{name: device.fields() for name, device in self._devices.items()}}

    @property
    def devices(self) -> Mapping[str, ObjectDevice]:
        """The devices by name."""
        return self._devices

    async def run_background(self, _app: web.Application) -> AsyncIterator[None]:
        """For `app.cleanup_ctx`: empty the outboxes and measure the devices until shutdown; then end the threads."""
        tasks = [asyncio.create_task(work(device)) for device in self._devices.values() for work in self._upkeep]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for device in self._devices.values():
            await asyncio.to_thread(device.pool.close)

    @property
    def _upkeep(self) -> tuple[Callable[[ObjectDevice], Coroutine[Any, Any, None]], ...]:
        return self._tend, self._deliver_pending, self._forget_old, self._watch

    async def _watch(self, device: ObjectDevice) -> None:
        await device.status.watch(device.measure)

    async def _forget_old(self, device: ObjectDevice) -> None:
        """Forget one device's old tombstones every period, for ever; at first somewhen within one."""
        await asyncio.sleep(RECLAIM_PERIOD_S * random.random())  # noqa: S311
        while True:
            try:
                await self.reclaim(device)
            except (SwiftletError, OSError) as error:
                _log.error("reclaiming failed: device=%s error=%s", device.name, error)
            except Exception:
                _log.exception("reclaiming failed unexpectedly: device=%s", device.name)
            await asyncio.sleep(RECLAIM_PERIOD_S)

    async def reclaim(self, device: ObjectDevice) -> int:
        """Forget tombstones older than the reclaim age; how many went.

        The age is cut to whole periods, so that all replicas of a partition forget the same ones.
        """
        before_s = (self._now_s() - self.settings.reclaim_age_s) // RECLAIM_PERIOD_S * RECLAIM_PERIOD_S
        gone = await device.pool.run(device.store.reclaim, Timestamp.at(max(0.0, before_s)))
        RECLAIMED.labels(device.name).inc(gone)
        return gone

    async def _tend(self, device: ObjectDevice) -> None:
        """Empty the outbox, for ever."""
        await self._repeat(device, device.rows.drain)

    async def _deliver_pending(self, device: ObjectDevice) -> None:
        """Deliver the rows that the device has pending, for ever."""
        if device.pending is not None:
            await self._repeat(device, device.pending.deliver)

    async def _repeat(self, device: ObjectDevice, work: Callable[[], Awaitable[int]]) -> None:
        """One device's upkeep; an attempt that fails is logged and followed by the next."""
        while True:
            try:
                await work()
            except (SwiftletError, OSError) as error:
                _log.error("upkeep failed: device=%s error=%s", device.name, error)
            except Exception:
                _log.exception("upkeep failed unexpectedly: device=%s", device.name)
            await asyncio.sleep(self.settings.outbox_interval_s)

    # -- requests --------------------------------------------------------------------------------------------

    def routes(self) -> list[web.RouteDef]:
        device, target = f"{PREFIX}/{{device}}", f"{PREFIX}/{{device}}/{{policy}}/{{partition}}"
        obj = target + "/{digest}"
        return [
            web.put(obj, self._route("put", self._put)),
            web.get(obj, self._route("get", self._get), allow_head=False),
            web.post(obj, self._route("post", self._post)),
            web.delete(obj, self._route("delete", self._delete)),
            web.post(f"{obj}/{REMOVE}", self._route("remove", self._remove)),
            web.post(f"{device}/{JUDGE}", self._route("judge", self._judge)),
            web.get(device, self._route("policies", self._policies), allow_head=False),
            web.get(f"{device}/{{policy}}", self._route("partitions", self._partitions), allow_head=False),
            web.get(target, self._route("suffix-hashes", self._suffix_hashes), allow_head=False),
            web.get(f"{target}/suffixes/{{suffix}}", self._route("entries", self._entries), allow_head=False),
        ]

    def _route(
        self, operation: str, handler: Callable[[ObjectDevice, web.Request], Awaitable[web.StreamResponse]]
    ) -> Handler:
        async def on_device(request: web.Request) -> web.StreamResponse:
            name = request.match_info["device"]
            device = self._devices.get(name)
            if device is None:
                raise DeviceFailed(f"device {name} is not served here; is the ring newer than this server?")
            return await handler(device, request)

        return self._guard.guard(operation, on_device)

    async def _put(self, device: ObjectDevice, request: web.Request) -> web.StreamResponse:
        return await put(self._guard, device, request, self.settings.idle_timeout_s)

    async def _get(self, device: ObjectDevice, request: web.Request) -> web.StreamResponse:
        self._guard.check(request)
        return await get(device, request, self.settings.idle_timeout_s)

    async def _message(self, request: web.Request, *, once: bool = False) -> dict[str, object]:
        """A request's JSON, after its signature was checked; with `once` a repetition is refused."""
        body = await BodyReader(request, self.settings.idle_timeout_s).all(MAX_JSON_BODY)
        (self._guard.check_once if once else self._guard.check)(request, body)
        return json_object(body)

    async def _post(self, device: ObjectDevice, request: web.Request) -> web.StreamResponse:
        with at_work(device.pool):
            record, row, proved = post_from(await self._message(request))
            device.check_outbox(row)
            key = object_key(request)
            try:
                info = await device.pool.run(_post_and_stat, device.store, key, record)
            except NotFound as error:
                raise (device.absent(key, error) if proved else error) from error
            return json_answer(reply_json(WriteReply(await _list_post(device, info, row))))

    async def _delete(self, device: ObjectDevice, request: web.Request) -> web.StreamResponse:
        with at_work(device.pool):
            timestamp, name, row = delete_from(await self._message(request))
            device.check_outbox(row)
            existed = await device.pool.run(_delete, device.store, object_key(request), timestamp, name)
            outcome = UpdateOutcome.NONE
            if row is not None:
                outcome = await device.rows.send(row, ObjectRow(row_name(name, row), timestamp, deleted=True))
            return json_answer(reply_json(WriteReply(outcome, existed)))

    async def _remove(self, device: ObjectDevice, request: web.Request) -> web.StreamResponse:
        with at_work(device.pool):
            entry, key = entry_from((await self._message(request, once=True)).get("entry")), object_key(request)
            if self._placed.get(device.name, nowhere)(key.policy).is_primary(key.partition):
                return json_answer({"removed": False})
            return json_answer({"removed": await device.pool.run(device.store.remove, key, entry)})

    async def _judge(self, device: ObjectDevice, request: web.Request) -> web.StreamResponse:
        with at_work(device.pool):
            verdict = verdict_from(await self._message(request))
            judge(device.doubts, verdict)
            return json_answer(doubt_json(device.doubts.pending()))

    async def _policies(self, device: ObjectDevice, request: web.Request) -> web.StreamResponse:
        self._guard.check(request)
        with at_work(device.pool):
            return json_answer({"policies": await device.pool.run(device.store.policies)})

    async def _partitions(self, device: ObjectDevice, request: web.Request) -> web.StreamResponse:
        self._guard.check(request)
        policy = parse_index("policy", request.match_info["policy"])
        with at_work(device.pool):
            return json_answer({"partitions": await device.pool.run(device.store.partitions, policy)})

    async def _suffix_hashes(self, device: ObjectDevice, request: web.Request) -> web.StreamResponse:
        self._guard.check(request)
        policy, partition = _place(request)
        with at_work(device.pool):
            hashes = await device.pool.run(device.store.suffix_hashes, policy, partition)
            return json_answer({"suffixes": {suffix: value.hex() for suffix, value in hashes.items()}})

    async def _entries(self, device: ObjectDevice, request: web.Request) -> web.StreamResponse:
        self._guard.check(request)
        policy, partition = _place(request)
        with at_work(device.pool):
            found = await device.pool.run(device.store.entries, policy, partition, request.match_info["suffix"])
            return json_answer({"entries": [entry_json(entry) for entry in found]})


def _place(request: web.Request) -> tuple[int, int]:
    match = request.match_info
    return parse_index("policy", match["policy"]), parse_index("partition", match["partition"])


def _post_and_stat(store: Store, key: ObjectKey, record: PostRecord) -> ObjectInfo:
    store.post(key, record)
    return store.stat(key)


def _delete(store: Store, key: ObjectKey, timestamp: Timestamp, name: str) -> bool:
    """Whether there was an object; that there was none is a good outcome, for the tombstone is kept."""
    try:
        store.delete(key, timestamp, name)
    except NotFound:
        return False
    return True


async def _list_post(device: ObjectDevice, info: ObjectInfo, row: ContainerUpdate | None) -> UpdateOutcome:
    """The listing shows a POST's time and content type, and the data's size and ETag."""
    if row is None:
        return UpdateOutcome.NONE
    name = row_name(info.name, row)
    return await device.rows.send(row, ObjectRow.of(name, info))


def add_object_routes(app: web.Application, server: ObjectServer) -> None:
    """Put the object server's routes and its background work into an application."""
    app.add_routes(server.routes())
    server.sync_endpoint.add_to(app)
    app.cleanup_ctx.append(server.run_background)


def create_object_app(
    *,
    devices: Mapping[str, Store],
    outboxes: Mapping[str, Outbox],
    row_sink: RowSink,
    settings: ObjectServerSettings | None = None,
    key: ClusterKey | None = None,
    doubts: Mapping[str, Doubts] | None = None,
) -> web.Application:
    """An application with the object routes and nothing else."""
    app = web.Application(client_max_size=0)
    add_object_routes(app, ObjectServer(devices, outboxes, row_sink, settings, key, doubts=doubts))
    return app
