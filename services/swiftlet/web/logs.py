"""Structured logging to standard error: one JSON object a line, or aligned text for people.

Use `get_logger(name)` anywhere, and `configure_logging` once per process. The request id of the current task is part of
every line. Values under names that suggest secrets are replaced, whoever logs them.

Fault model: standard error may take nothing, as on a full disk. Then lines are counted in place of being written,
and what the service does goes on; a few of the last ones may still be written later.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from swiftlet.context import request_id

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["json", "console"]

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_SECRET_WORDS = ("secret", "token", "password", "authorization", "signature", "cookie")
_SECRET_NAMES = frozenset({"key", "hash_path_prefix", "hash_path_suffix", "hash_prefix", "hash_suffix"})
_NAME = "_name"
"""The field with a logger's name until it is rendered, as structlog itself uses the word `logger`."""
HIDDEN = "[hidden]"


def get_logger(name: str) -> FilteringBoundLogger:
    """Return a logger whose lines have `logger: name`."""
    return cast(FilteringBoundLogger, structlog.get_logger(**{_NAME: name}))


class _Output:
    """A file for whole lines that raises no error when it can't be written."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        """Write lines, or count them as lost."""
        try:
            self._file.write(text)
            self._file.flush()
        except OSError:
            # Logging begins before workers share their metrics, which prometheus-client must not be imported before.
            from swiftlet.web.log_metrics import LOST

            LOST.inc(text.count("\n"))

    def flush(self) -> None:
        """Do nothing: each line is written at once."""


@dataclass(frozen=True, slots=True)
class _JsonLines:
    """Where to write JSON lines of level info, if they are written at all."""

    service: str
    file: _Output


_json_lines: _JsonLines | None = None
_encode = json.JSONEncoder(default=repr).encode


def configure_logging(service: str, level: Level = "info", format: Format = "json") -> None:
    """Send this process's logs, and those of libraries that use `logging`, to standard error."""
    shared: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _with_service(service),
        _with_request_id,
        hide_secrets,
    ]
    rendering = _rendering(format)
    output = _Output(sys.stderr)
    global _json_lines
    _json_lines = _JsonLines(service, output) if format == "json" and _LEVELS[level] <= logging.INFO else None
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, output)),
        cache_logger_on_first_use=True,
    )
    _redirect_stdlib(output, shared, rendering, _LEVELS[level])


def log_many(name: str, event: str, lines: Sequence[Mapping[str, object]], at: float) -> None:
    """Log many lines as `get_logger(name).info(event, **line)` does, with one time (seconds since the epoch) in one
    call.

    Fields must not be secrets, as their names are not checked, and each line has one at least.
    """
    to = _json_lines
    if to is None:
        logger = get_logger(name)
        for line in lines:
            logger.info(event, **line)
        return
    end = _end_at(to.service, name, event, at)
    to.file.write("".join([_encode(line)[:-1] + end for line in lines]))


def log_encoded(name: str, event: str, lines: str, at: float) -> None:
    """Log lines as `log_many` does, each of which is a JSON object already; it ends with its brace and a newline."""
    to = _json_lines
    if to is None:
        log_many(name, event, [json.loads(line) for line in lines.splitlines()], at)
        return
    # Within a JSON text a newline is escaped.
    to.file.write(lines.replace("}\n", _end_at(to.service, name, event, at)))


def _end_at(service: str, name: str, event: str, at: float) -> str:
    second, microseconds = divmod(int(at * 1e6), 1_000_000)
    before, behind = _end_of_lines(service, name, event)
    return f"{before}{_to_the_second(second)}.{microseconds:06d}Z{behind}"


@lru_cache(maxsize=64)
def _end_of_lines(service: str, name: str, event: str) -> tuple[str, str]:
    """Return what stands before and behind the time at the end of a line, from the comma on."""
    fields = {"event": event, "level": "info", "service": service, "logger": name}
    return f', {_encode(fields)[1:-1]}, "timestamp": "', '"}\n'


@lru_cache(maxsize=4)
def _to_the_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _rendering(format: Format) -> list[Processor]:
    if format == "console":
        # The default traceback shows local variables, secrets included.
        plain = structlog.dev.plain_traceback
        return [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]


def _with_service(service: str) -> Processor:
    def add(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["service"] = service
        if _NAME in event:
            event["logger"] = event.pop(_NAME)
        return event

    return add


def _with_request_id(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    current = request_id.get()
    if current != "-":
        event.setdefault("request_id", current)
    return event


def hide_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace values whose names say that they are secrets."""
    for name in event:
        if _is_secret(name):
            event[name] = HIDDEN
    return event


@lru_cache(maxsize=1024)
def _is_secret(name: str) -> bool:
    lowered = name.lower()
    return lowered in _SECRET_NAMES or any(word in lowered for word in _SECRET_WORDS)


def _redirect_stdlib(output: _Output, shared: list[Processor], rendering: list[Processor], level: int) -> None:
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
    )
    handler = logging.StreamHandler(output)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.INFO))


def log_loop_errors(logger: FilteringBoundLogger) -> Callable[[Any, dict[str, Any]], None]:
    """Return an event loop's exception handler that logs errors that no one awaited."""

    def handle(_loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        logger.error("unhandled error in the event loop", detail=context.get("message"), exc_info=error or False)

    return handle
