"""What every request of the object server goes through: its signature, its metrics, and how errors are answered."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

from swiftlet.errors import DeviceFailed, SwiftletError
from swiftlet.model import ObjectKey
from swiftlet.servers.objects.metrics import DEVICE_UP, DURATION, IN_FLIGHT, REQUESTS
from swiftlet.servers.objects.pool import DevicePool
from swiftlet.servers.shared.json_requests import signed_parts
from swiftlet.transport.object_messages import parse_digest, parse_index
from swiftlet.transport.signing import ClusterKey
from swiftlet.transport.wire import JSON_TYPE, error_to_wire, json_bytes

_log = logging.getLogger(__name__)

OUTCOME = web.RequestKey("object_outcome", str)
"""The outcome of a streamed answer, whose status was sent before."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def json_answer(value: object, status: int = 200) -> web.Response:
    """Return a response with a value as JSON."""
    return web.Response(body=json_bytes(value), status=status, content_type=JSON_TYPE)


def error_answer(error: SwiftletError) -> web.Response:
    """A domain error as an answer."""
    status, body = error_to_wire(error)
    return json_answer(body, status)


def object_key(request: web.Request) -> ObjectKey:
    """The object that a request's path names."""
    match = request.match_info
    return ObjectKey(
        parse_index("policy", match["policy"]),
        parse_index("partition", match["partition"]),
        parse_digest(match["digest"]),
    )


class RequestGuard:
    """Signature checks, metrics and errors, the same for all operations."""

    def __init__(self, key: ClusterKey | None) -> None:
        """`key` None lets everybody in."""
        self._key = key

    def check(self, request: web.Request, meaning: bytes = b"") -> None:
        """Unauthorized unless the request is signed for what it says."""
        if self._key is not None:
            self._key.check(*signed_parts(request), meaning)

    def check_once(self, request: web.Request, meaning: bytes) -> None:
        """Check the signature as `check` does, and refuse a request that was made before: repeated by an eavesdropper
        it would do harm.
        """
        if self._key is not None:
            self._key.check_once(*signed_parts(request), meaning)

    def guard(self, operation: str, handler: Handler) -> Handler:
        """`handler` with its errors turned into answers and everything counted."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            device, began_s, outcome = request.match_info["device"], time.perf_counter(), "aborted"
            try:
                response = await handler(request)
                outcome = request.get(OUTCOME, "ok")
            except SwiftletError as error:
                outcome = type(error).__name__
                note_failure(device, operation, error)
                return error_answer(error)
            else:
                return response
            finally:
                REQUESTS.labels(device, operation, outcome).inc()
                DURATION.labels(operation).observe(time.perf_counter() - began_s)

        return guarded


def note_failure(device: str, operation: str, error: SwiftletError) -> None:
    """Log what a person should look at."""
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
