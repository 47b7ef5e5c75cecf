"""Every request of the object server passes through here: admission to its device, metrics, errors as answers."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

from swiftlet.errors import DeviceFailed, SwiftletError
from swiftlet.servers.objects.metrics import DEVICE_UP, DURATION, IN_FLIGHT, REQUESTS
from swiftlet.servers.objects.pool import DevicePool
from swiftlet.servers.shared.json_requests import Answer, answer, refusal

_log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def guarded(operation: str, work: Callable[[web.Request], Awaitable[Answer]]) -> Handler:
    """A handler that answers with what `work` finds or with its error, and counts both."""

    async def handler(request: web.Request) -> web.StreamResponse:
        device, began_s, outcome = request.match_info["device"], time.perf_counter(), "aborted"
        try:
            found = answer(await work(request))
            outcome = "ok"
        except SwiftletError as error:
            outcome = type(error).__name__
            note_failure(device, operation, error)
            return refusal(error)
        else:
            return found
        finally:
            REQUESTS.labels(device, operation, outcome).inc()
            DURATION.labels(operation).observe(time.perf_counter() - began_s)

    return handler


def note_failure(device: str, operation: str, error: SwiftletError) -> None:
    """Log errors that an operator should look at."""
    if isinstance(error, DeviceFailed):
        DEVICE_UP.labels(device).set(0)
        _log.error("device failed: device=%s operation=%s error=%s", device, operation, error)


@contextmanager
def at_work(pool: DevicePool) -> Iterator[None]:
    """Admit a request to a device and count it as in progress there."""
    with pool.admitted():
        gauge = IN_FLIGHT.labels(pool.name)
        gauge.inc()
        try:
            yield
        finally:
            gauge.dec()
