"""The access log and the request metrics; they are written after an answer was sent, so sizes and times are final."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from time import time as now

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from swiftlet.web.logs import get_logger, log_many
from swiftlet.web.metrics import HttpMetrics
from swiftlet.web.requests import ID, path_of

_QUIET_PATHS = frozenset({"/healthz", "/readyz", "/metrics", "/statusz"})
"""Programs request these pages every few seconds, so they are logged at debug level."""

_WITHOUT_BODY = frozenset({204, 304})


def _body_bytes(request: web.BaseRequest, response: web.StreamResponse) -> int:
    """Return the number of bytes of the body that were sent; aiohttp counts them with the head and the framing of
    chunks.
    """
    if not response.prepared or request.method == "HEAD" or response.status in _WITHOUT_BODY:
        return 0
    length = response.content_length
    return response.body_length if length is None else min(length, response.body_length)


@dataclass(slots=True)
class _Answers:
    """Requests with the same labels, which are counted together."""

    durations_s: list[float] = field(default_factory=list)
    received: int = 0
    sent: int = 0


class AccessBatch:
    """Logs and counts requests, many at a time: for each line a logger takes several times as long as the line."""

    def __init__(self, metrics: HttpMetrics) -> None:
        """Count requests in `metrics`; they are logged and counted when `write` is called."""
        self._metrics = metrics
        self._lines: list[dict[str, object]] = []
        self._quiet = get_logger("access")
        self._answers: dict[tuple[str, int], _Answers] = {}

    @property
    def is_empty(self) -> bool:
        """Return whether `write` has nothing to do."""
        return not self._answers

    def add(
        self,
        method: str,
        path: str,
        status: int,
        bodies: tuple[int, int],
        duration_s: float,
        remote: str | None,
        request_id: str,
    ) -> None:
        """Add a request, with the sizes of the bodies received and sent; `write` counts and logs it."""
        received, sent = bodies
        answers = self._answers.get((method, status))
        if answers is None:
            answers = self._answers[method, status] = _Answers()
        answers.durations_s.append(duration_s)
        answers.received += received
        answers.sent += sent
        line = {
            "method": method,
            "path": path,
            "status": status,
            "bytes_in": received,
            "bytes_out": sent,
            "duration_s": round(duration_s, 6),
            "remote": remote,
            "request_id": request_id,
        }
        if path in _QUIET_PATHS:
            self._quiet.debug("request", **line)
        else:
            self._lines.append(line)

    def write(self, at: float) -> None:
        """Count and log what was added; `at` is in seconds since the epoch."""
        answered, self._answers = self._answers, {}
        for (method, status), answers in answered.items():
            self._metrics.answered_all(method, status, answers.durations_s, answers.received, answers.sent)
        lines, self._lines = self._lines, []
        if lines:
            log_many("access", "request", lines, at)


def access_log_for(metrics: HttpMetrics) -> type[AbstractAccessLogger]:
    """Return the access logger class for aiohttp's runner."""
    batch = AccessBatch(metrics)

    class AccessLog(AbstractAccessLogger):
        """Logs and counts requests, together those that end in one turn of the event loop."""

        def __init__(self, logger: logging.Logger, log_format: str) -> None:
            """Take the arguments that aiohttp passes, and use neither."""
            super().__init__(logger, log_format)

        def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
            """Log and count a request; aiohttp calls this once the answer was sent or its reader is gone."""
            received = request.content.total_bytes if request.body_exists else 0
            sent = _body_bytes(request, response)
            if batch.is_empty:
                asyncio.get_running_loop().call_soon(lambda: batch.write(now()))
            bodies, remote = (received, sent), request.remote
            batch.add(request.method, path_of(request), response.status, bodies, time, remote, request.get(ID, "-"))

    return AccessLog
