"""The id of a request, which every function and hop knows without being given it."""

from __future__ import annotations

import secrets
from contextvars import ContextVar

REQUEST_ID_HEADER = "X-Trans-Id"
"""Carried on every hop and returned to the client."""

request_id: ContextVar[str] = ContextVar("request_id", default="-")
"""The id of the request that this task works for; "-" outside of requests."""


def new_request_id() -> str:
    """A fresh id: `tx` and 21 hex digits, unguessable enough not to collide."""
    return "tx" + secrets.token_hex(11)[:21]
