"""Admits every request of the object server to its device, counts it, and turns errors into answers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

from swiftlet.errors import DeviceFailed, SwiftletError
from swiftlet.servers.objects.metrics import DEVICE_UP, DURATION, IN_FLIGHT, REQUESTS
from swiftlet.servers.objects.pool import DevicePool
from swiftlet.servers.shared.json_requests import Answer, answer, refusal
from swiftlet.web.logs import get_logger

_log = get_logger("object")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def guarded(operation: str, work: Callable[[web.Request], Awaitable[Answer]]) -> Handler:
    """Return a handler that answers with the result of `work` or with its error, and counts both."""

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
        _log.error("a device failed during a request", device=device, operation=operation, error=str(error))


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
