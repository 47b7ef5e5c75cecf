"""What is logged of bytes that are no request: one line, without them.

aiohttp logs them as an error with its traceback. Anybody may send them, as often as they like, and they may hold a
token whose header is malformed: neither belongs in a log.
"""

from __future__ import annotations

import logging

from aiohttp.http_exceptions import HttpProcessingError

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
    """From here on, in this process; harmless a second time."""
    logging.getLogger(_LOGGER).addFilter(_FILTER)
