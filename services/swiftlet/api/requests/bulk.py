"""Bulk requests, for many objects in one request: how they are recognised, and what they have in common.

https://docs.openstack.org/swift/latest/middleware.html#bulk-operations. The rights are checked for each name, not for
the request's path. The response is 200 with a report, whose `Response Status` is what counts; while long work goes on,
white space comes before it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

import structlog
from aiohttp import web

from swiftlet.api.context.access import TokenAccess
from swiftlet.api.context.core import Call
from swiftlet.api.context.reports import render_report, report_alive, report_type, status_line
from swiftlet.api.http.problems import ApiError, status_of
from swiftlet.errors import SwiftletError, Unauthorized

EXTRACT, DELETE = "extract-archive", "bulk-delete"
_SHOWN_NAME = 1400
"""The largest number of characters of a name in a report."""
_log = structlog.get_logger("api")


def asked_for(method: str, query: Mapping[str, str]) -> str | None:
    """Return `EXTRACT`, `DELETE`, or None for any other request."""
    if method == "PUT" and EXTRACT in query:
        return EXTRACT
    return DELETE if method in {"POST", "DELETE"} and DELETE in query else None


def require_somebody(call: Call) -> None:
    """Raise 401 for requests without a token: nobody can write without one, and reading the body would be costly."""
    if isinstance(call.access, TokenAccess) and call.access.identity is None:
        raise Unauthorized("send X-Auth-Token; tokens are issued at /auth/v1.0")


@dataclass(slots=True)
class Tally:
    """The outcomes of the names that were processed so far."""

    success: int
    """The status when nothing failed."""
    counts: dict[str, int]
    """`Number Files Created` and the like, in the report's words."""
    max_failures: int
    failures: list[tuple[str, str]] = field(default_factory=list)
    server_failed: bool = False
    status: int | None = None
    """The status of the error that ended the request early; None without one."""
    body: str = ""

    def done(self, what: str) -> None:
        """Count one more of `what`."""
        self.counts[what] += 1

    def failed(self, name: str, error: SwiftletError | int) -> None:
        """Record a name that could not be served. Raises ApiError once there are too many."""
        status = error if isinstance(error, int) else status_of(error)
        self.server_failed |= status >= 500
        self.failures.append((quote(name.encode("utf-8", "surrogateescape"))[:_SHOWN_NAME], status_line(status)))

    @property
    def full(self) -> bool:
        """Return whether there were so many failures that the work ends."""
        return len(self.failures) >= self.max_failures

    def ended(self, error: SwiftletError) -> None:
        """Record that the work ended early."""
        self.status, self.body = status_of(error), str(error)

    def fields(self, nothing: str) -> dict[str, object]:
        """Return the report's fields; `nothing` is its message when there was nothing to do."""
        status, body = self.success, self.body
        if self.status is not None:
            status = self.status
        elif self.failures:
            status = 502 if self.server_failed else 400
        elif not any(self.counts.values()):
            status, body = 400, nothing
        return {"Response Status": status_line(status), "Response Body": body, **self.counts}


async def report_on(
    call: Call, tally: Tally, work: Callable[[], Awaitable[None]], nothing: str, root: str
) -> web.StreamResponse:
    """Do the work and answer 200 with the report."""
    media_type = report_type(call)

    async def reported() -> bytes:
        try:
            await work()
        except SwiftletError as error:
            tally.ended(error)
        except Exception:
            _log.exception("a bulk operation failed unexpectedly", path=call.path.quoted)
            tally.ended(ApiError(500, "the server failed before all names were processed; repeat the request"))
        return render_report(media_type, tally.fields(nothing), tally.failures, root)

    return await report_alive(call, 200, media_type, reported)
