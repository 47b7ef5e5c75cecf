"""Handles bytes that are no request, where aiohttp's own handling is not enough.

aiohttp logs them as an error with its traceback. Anybody may send them, as often as they like, and they may hold a
token whose header is malformed: neither belongs in a log. And its parser takes a CONNECT without a target for a request
without a URL, at which the connection's task fails, so that the client would wait for ever.
"""

from __future__ import annotations

import logging
from typing import Any

from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

_LOGGER = "aiohttp.server"


class _WithoutBytes(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            record.msg, record.args = "malformed request, %s: %s", (error.code, type(error).__name__)
            record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
            record.exc_info = record.exc_text = None
        return True


_FILTER = _WithoutBytes()


def log_without_bytes() -> None:
    """Keep such bytes out of this process's log from now on; a second call does nothing."""
    logging.getLogger(_LOGGER).addFilter(_FILTER)


def answered_without_target(make: Any) -> Any:
    """Return a factory of requests like `make` that gives requests without a target the target `/`.

    So they are answered: there is nothing at that path.
    """

    def with_target(message: Any, *others: Any, **named: Any) -> Any:
        if message.url is None:
            message = message._replace(url=URL("/"), path="/")
        return make(message, *others, **named)

    return with_target
