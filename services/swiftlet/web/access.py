"""The access log and the request metrics; they are written after an answer was sent, so sizes and times are final."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

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


def access_log_for(metrics: HttpMetrics) -> type[AbstractAccessLogger]:
    """Return the access logger class for aiohttp's runner."""
    log = get_logger("access")

    class AccessLog(AbstractAccessLogger):
        """Logs and counts each request."""

        def __init__(self, logger: logging.Logger, log_format: str) -> None:
            """Take the arguments that aiohttp passes, and use neither."""
            super().__init__(logger, log_format)

        def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
            """Log and count a request; aiohttp calls this once the answer was sent or its reader is gone."""
            received = request.content.total_bytes if request.body_exists else 0
            sent = _body_bytes(request, response)
            metrics.answered(request.method, response.status, time, received, sent)
            path = path_of(request)
            write = log.debug if path in _QUIET_PATHS else log.info
            write(
                "request",
                method=request.method,
                path=path,
                status=response.status,
                bytes_in=received,
                bytes_out=sent,
                duration_s=round(time, 6),
                remote=request.remote,
                request_id=request.get(ID, "-"),
            )

    return AccessLog


@dataclass(slots=True)
class _Answers:
    """Requests with the same labels, which are counted together."""

    durations_s: list[float] = field(default_factory=list)
    received: int = 0
    sent: int = 0


class AccessBatch:
    """Logs and counts requests that were answered elsewhere, many at a time, in the same way as `AccessLog`."""

    def __init__(self, metrics: HttpMetrics) -> None:
        """Count requests in `metrics`; they are logged and counted when `write` is called."""
        self._metrics = metrics
        self._lines: list[dict[str, object]] = []
        self._answers: dict[tuple[str, int], _Answers] = {}

    def add(
        self,
        method: str,
        path: str,
        status: int,
        bodies: tuple[int, int],
        duration_s: float,
        remote: str,
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
        self._lines.append(line)

    def write(self, at: float) -> None:
        """Count and log what was added; `at` is in seconds since the epoch."""
        answered, self._answers = self._answers, {}
        for (method, status), answers in answered.items():
            self._metrics.answered_all(method, status, answers.durations_s, answers.received, answers.sent)
        lines, self._lines = self._lines, []
        if lines:
            log_many("access", "request", lines, at)
