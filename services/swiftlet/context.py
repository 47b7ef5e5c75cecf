"""The id of a request, which every function and hop can read without being passed it."""

from __future__ import annotations

import secrets
from contextvars import ContextVar

REQUEST_ID_HEADER = "X-Trans-Id"
"""The header that carries the id on every hop and back to the client."""

request_id: ContextVar[str] = ContextVar("request_id", default="-")
"""The id of the request that this task works for; "-" outside of requests."""


def new_request_id() -> str:
    """Return a fresh id: `tx` and 21 hex digits, random enough not to collide."""
    return "tx" + secrets.token_hex(11)[:21]
