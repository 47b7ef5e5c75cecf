"""`/statusz`: the state of a service in JSON, for programs that decide whether it is safe to go on.

Parts of a service add fields to its status board; `docs/wire.md` lists them. Fields are made from memory: a request
does no disk or network I/O, so that a service with a sick disk can report it.

Fault model: a part may raise, return what JSON cannot hold, or grow over the limit. Its field is then `null`, which
readers take for "not known", the reason is logged once, and the other fields stay.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from aiohttp import web

from swiftlet import __version__
from swiftlet.web.logs import get_logger

MAX_BYTES = 64 * 1024
"""The largest size in bytes of a report; readers need not take more."""

Part = Callable[[], object]
"""A function that makes one field's value of JSON's types; called in the event loop, so it must return at once."""

_log = get_logger("statusz")


class StatusBoard:
    """The fields of one process's report."""

    def __init__(self, service: str, now_s: Callable[[], float] = time.time) -> None:
        """Create a board with the fields that all services have: `service`, `version` and `startedAt`, which is now."""
        started_s = now_s()
        self._parts: dict[str, Part] = {
            "service": lambda: service,
            "version": lambda: __version__,
            "startedAt": lambda: started_s,
        }
        self._problems: dict[str, str] = {}

    def add(self, name: str, part: Part) -> None:
        """Add a part that makes the field `name` (camelCase). Raises ValueError when another part has that name."""
        if name in self._parts:
            raise ValueError(f"the status report already has a field {name!r}")
        self._parts[name] = part

    def report(self) -> bytes:
        """Return the report as JSON of less than `MAX_BYTES`."""
        problems: dict[str, str] = {}
        fields = {name: _made(name, part, problems) for name, part in self._parts.items()}
        while _size(fields) >= MAX_BYTES:
            largest = max(fields, key=lambda name: len(fields[name]))
            problems[largest] = "it is too large for a report"
            fields[largest] = b"null"
        for name, problem in problems.items():
            if self._problems.get(name) != problem:
                _log.error(
                    "the value of a field of the status report could not be determined", field=name, problem=problem
                )
        self._problems = problems
        return _joined(fields)


def _made(name: str, part: Part, problems: dict[str, str]) -> bytes:
    try:
        return json.dumps(part(), separators=(",", ":"), allow_nan=False).encode("ascii")
    except Exception as error:
        problems[name] = repr(error)
        return b"null"


def _joined(fields: dict[str, bytes]) -> bytes:
    return b"{" + b",".join(json.dumps(name).encode("ascii") + b":" + value for name, value in fields.items()) + b"}\n"


def _size(fields: dict[str, bytes]) -> int:
    return sum(len(name) + len(value) + 4 for name, value in fields.items()) + 2


STATUS = web.AppKey("status", StatusBoard)


def add_status_route(app: web.Application) -> None:
    """Answer `GET /statusz` from the application's board."""
    app.router.add_get("/statusz", _statusz)


async def _statusz(request: web.Request) -> web.Response:
    return web.Response(body=request.app[STATUS].report(), content_type="application/json")
