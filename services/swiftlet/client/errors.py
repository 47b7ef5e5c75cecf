"""What goes wrong, as exceptions that a caller can tell apart; `str(error)` is a sentence for a person."""

from __future__ import annotations


class ClientError(Exception):
    """Base of everything that this package raises on purpose."""


class ConfigurationError(ClientError):
    """Credentials, options or arguments are missing or make no sense; the message says what to set."""


class LocalError(ClientError):
    """A file of this machine could not be read or written."""


class ChecksumMismatch(ClientError):
    """Bytes differ from the digest that came with them, or that was expected of them."""


class NotRepeatable(ClientError):
    """A body that can be read only once was needed a second time."""


class ConnectionFailed(ClientError):
    """No complete answer came. With `sent` the request may have had its effect; without it, it has not."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        """Keep whether the request may have reached the store."""
        super().__init__(message)
        self.sent = sent

    def __reduce__(self) -> tuple[object, ...]:
        return _connection_failed, (str(self), self.sent)


class StatusError(ClientError):
    """The store refused: `status`, the `reason` it gave, and the `request_id` by which its logs know the request."""

    def __init__(self, status: int, reason: str, request: str, request_id: str = "", retry_after_s: float = 0) -> None:
        """Keep what the answer said; `request` is its method and path."""
        super().__init__(status, reason, request, request_id, retry_after_s)
        self.status = status
        self.reason = reason
        self.request = request
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        """Seconds after which the store asked to try again; 0 when it did not."""

    def __str__(self) -> str:
        known = f" (request {self.request_id})" if self.request_id else ""
        return f"{self.request}: {self.status} {self.reason}{known}"


class NotModified(StatusError):
    """If-None-Match or If-Modified-Since holds: the caller has this version already (304)."""


class BadRequest(StatusError):
    """The store does not understand the request, or a limit forbids it (400)."""


class Unauthorized(StatusError):
    """There is no valid token, and logging in gave none (401)."""


class Forbidden(StatusError):
    """The user may not do this (403)."""


class NotFound(StatusError):
    """There is no such account, container or object (404)."""


class Conflict(StatusError):
    """It is in the way of what is there, such as objects of a container to be deleted (409)."""


class PreconditionFailed(StatusError):
    """A condition of the request does not hold (412)."""


class TooLarge(StatusError):
    """The body or the quota is exceeded (413)."""


class RangeNotSatisfiable(StatusError):
    """The object has no byte of the range (416)."""


class Rejected(StatusError):
    """The store has other bytes than the digest sent with them (422)."""


class TooManyRequests(StatusError):
    """A rate limit is exceeded (429, 498)."""


class ServerError(StatusError):
    """The store failed or is busy (5xx); the request may have had its effect."""


_BY_STATUS: dict[int, type[StatusError]] = {
    304: NotModified,
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: PreconditionFailed,
    413: TooLarge,
    416: RangeNotSatisfiable,
    422: Rejected,
    429: TooManyRequests,
    498: TooManyRequests,
}


def status_error(status: int, reason: str, request: str, request_id: str = "", retry_after_s: float = 0) -> StatusError:
    """Return the error of a status: one of the classes above, `StatusError` itself for those without a class."""
    kind = _BY_STATUS.get(status, ServerError if status >= 500 else StatusError)
    return kind(status, reason, request, request_id, retry_after_s)


def _connection_failed(message: str, sent: bool) -> ConnectionFailed:
    return ConnectionFailed(message, sent=sent)
