"""Domain errors: what can go wrong in Swiftlet, independent of any framework's classes.

Stores, listings and transports raise these on either side of the wire; the HTTP front end turns them into status codes
in one place (`swiftlet.api`), storage servers in another (`swiftlet.servers`). Every message says what is wrong and,
where somebody can act on it, what to do.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swiftlet.timestamp import Timestamp

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


class SwiftletError(Exception):
    """Base of all domain errors; `str(error)` is a sentence for a person."""


class InvalidName(SwiftletError):
    """The API does not allow this account, container or object name."""


class EmptyName(InvalidName):
    """A path has an account or container with an empty name, followed by more."""


class NameTooLong(InvalidName):
    """A name is over the API's limit."""


class NotFound(SwiftletError):
    """The account, container or object is not here.

    `timestamp` is the deletion's when there is a tombstone: it takes part in deciding which replica is newest.
    """

    def __init__(self, message: str, timestamp: Timestamp | None = None) -> None:
        """Keep the tombstone's timestamp, None when nothing was ever stored here."""
        super().__init__(message)
        self.timestamp = timestamp


class Unproved(SwiftletError):
    """The device's data may be older than what was acknowledged while it was away; ask another replica first."""


class NotTaken(SwiftletError):
    """A container server's native half does not take rows of this container; they are delivered over HTTP."""


class ClockDiffers(SwiftletError):
    """A guest's timestamp is too far from the object server's clock."""


class NotPlain(SwiftletError):
    """An object that a guest can't use as it is stored; a proxy knows what it means."""


class GuestRefused(SwiftletError):
    """An object server does not do what a guest asks; every other one would say the same.

    `kind` is the server's word: Unauthorized, Forbidden, ClockDiffers or NotPlain.
    """

    def __init__(self, message: str, kind: str) -> None:
        """Keep the server's word."""
        super().__init__(message)
        self.kind = kind


class Superseded(SwiftletError):
    """A write lost against a newer version that is already stored; `timestamp` is that version's."""

    def __init__(self, message: str, timestamp: Timestamp) -> None:
        """Keep the newer version's timestamp."""
        super().__init__(message)
        self.timestamp = timestamp


class NotEmpty(SwiftletError):
    """A container with objects, or an account with containers, was to be deleted."""


class TooMuchMetadata(SwiftletError):
    """A change would give an account or container more metadata than its bounds allow."""


class PageTooCostly(SwiftletError):
    """A page of a listing would have to skip too many names that are not in it."""


class PolicyConflict(SwiftletError):
    """A container exists with another storage policy than the one asked for."""


class DiskFull(SwiftletError):
    """The device is at its reserve; writes are refused, deletes and reads go on (HTTP 507)."""


class DeviceFailed(SwiftletError):
    """The device answered with an I/O error or is not mounted (HTTP 507 within the cluster)."""


class ChecksumMismatch(SwiftletError):
    """Bytes differ from the checksum that was sent or stored with them."""


class SizeMismatch(SwiftletError):
    """More or fewer bytes arrived than were announced."""


class StoreFormatError(SwiftletError):
    """A file on the device has an unknown format or is damaged."""


class DeviceLocked(SwiftletError):
    """Another process owns the device."""


class NodeError(SwiftletError):
    """A peer could not be asked or answered with a failure of its own; try another replica.

    Subclasses say how; `NodeError` itself is raised for an unexpected answer (5xx, malformed reply).
    """


class NodeUnreachable(NodeError):
    """A connection was refused or reset, or the name does not resolve."""


class NodeDamaged(NodeError):
    """A peer's bytes do not match the checksum that it gave for them."""


class NodeTimeout(NodeError):
    """A peer gave no answer within the deadline."""


class NodeBusy(NodeError):
    """The peer sheds load or is draining (HTTP 503 within the cluster)."""


class Unauthorized(SwiftletError):
    """A request has no token, or one that is malformed, expired or not ours (HTTP 401)."""


class Forbidden(SwiftletError):
    """A valid token does not allow this (HTTP 403)."""


class SettingsError(SwiftletError):
    """A setting is unknown, missing or has an impossible value; the message names the field and the fix."""


class Unavailable(SwiftletError):
    """Too few replicas could be asked for the answer to be trusted (HTTP 503); retry later."""


class NotSupported(SwiftletError):
    """The objects of this storage policy can't do that."""


class TooManyFailures(SwiftletError):
    """There were too many failed logins lately (HTTP 429); `retry_after_s` says when to try again."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        """Keep the seconds to wait."""
        super().__init__(message)
        self.retry_after_s = retry_after_s


def device_error(error: OSError, what: str) -> SwiftletError:
    """Return the domain error for the operating system's error while working on `what`: DiskFull or DeviceFailed."""
    if error.errno in _NO_SPACE:
        return DiskFull(f"{what}: no space left on the device")
    return DeviceFailed(f"{what}: {error.strerror or error}")


class BrokenSegment(SwiftletError):
    """A segment of a large object is missing or differs from the manifest; the text names it."""
