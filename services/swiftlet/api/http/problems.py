"""The one place where errors become HTTP responses.

The body is one line of plain text that says what is wrong and, where possible, what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from aiohttp import web

from swiftlet import errors
from swiftlet.errors import SwiftletError

CLIENT_GONE = 499
"""Status for the log when the client has gone before its response."""


class ApiError(SwiftletError):
    """A response other than success that the API itself decides."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        """`status` is the HTTP status, `reason` a sentence for a person.

        Of a 401, the header WWW-Authenticate has the scheme alone.
        """
        super().__init__(reason)
        self.status = status
        self.headers = dict(headers or {})


_STATUS: dict[type[SwiftletError], int] = {
    errors.NameTooLong: 400,
    errors.EmptyName: 404,
    errors.InvalidName: 412,
    errors.NotFound: 404,
    errors.Superseded: 409,
    errors.NotEmpty: 409,
    errors.PolicyConflict: 409,
    errors.BrokenSegment: 409,
    errors.TooMuchMetadata: 400,
    errors.PageTooCostly: 400,
    errors.ChecksumMismatch: 422,
    errors.SizeMismatch: 400,
    errors.DiskFull: 507,
    errors.DeviceFailed: 503,
    errors.NodeError: 503,
    errors.Unavailable: 503,
    errors.NotSupported: 501,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.TooManyFailures: 429,
}


_REASONS = {status.value: status.phrase for status in HTTPStatus} | {
    413: "Request Entity Too Large",
    416: "Requested Range Not Satisfiable",
    422: "Unprocessable Entity",
    497: "Blacklisted",
    498: "Rate Limited",
    CLIENT_GONE: "Client Disconnect",
}
"""The reason phrases of statuses: Swift's where those of Python depend on its version, or HTTP defines none."""


def reason_of(status: int) -> str | None:
    """Return the reason phrase of a status, such as `Not Found`; None when it has none."""
    return _REASONS.get(status)


def status_of(error: SwiftletError) -> int:
    """Return the HTTP status of a domain error; 500 for one that should never reach a client."""
    if isinstance(error, ApiError):
        return error.status
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)


def answer(error: SwiftletError, realm: str = "unknown") -> web.Response:
    """Return the response to a domain error; `realm` is the account for 401's challenge."""
    status = status_of(error)
    headers = dict(error.headers) if isinstance(error, ApiError) else {}
    if status == 401:
        quoted = "".join(c if c.isalnum() or c in "_-." else "%" for c in realm)
        scheme = headers.get("WWW-Authenticate", "Swift")
        headers["WWW-Authenticate"] = f'{scheme} realm="{quoted}"'
    if status == 503:
        headers.setdefault("Retry-After", "1")
    if isinstance(error, errors.NameTooLong):
        # The body's only variable parts are numbers, so HTML is as safe as plain text, and Swift's clients expect it.
        headers["Content-Type"] = "text/html; charset=UTF-8"
    if isinstance(error, errors.TooManyFailures):
        headers["Retry-After"] = str(error.retry_after_s)
    return web.Response(status=status, reason=reason_of(status), text=str(error), headers=headers)
