"""Turns errors of SQLite and the system into domain errors.

Damage that concerns one database (`DamagedDatabase`) is told apart from a failure of the device: the first moves the
database to quarantine, the second takes the device out of service.
"""

from __future__ import annotations

import sqlite3

from swiftlet.errors import DeviceFailed, DiskFull, NodeBusy, StoreFormatError, SwiftletError, device_error

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}
_DEVICE = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


class DamagedDatabase(StoreFormatError):
    """One database can't be read; it goes to quarantine and is rebuilt from its peers."""


def translate(error: sqlite3.Error | OSError, what: str) -> SwiftletError | None:
    """Return the domain error for an error during work on `what`; None when it is a mistake of the program."""
    if isinstance(error, OSError):
        return device_error(error, what)
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return None
    primary = code & 0xFF
    if primary in _DAMAGED or code == sqlite3.SQLITE_IOERR_SHORT_READ:
        return DamagedDatabase(f"{what}: the database is damaged ({error})")
    if primary == sqlite3.SQLITE_FULL:
        return DiskFull(f"{what}: no space left on the device")
    if primary in _DEVICE:
        return DeviceFailed(f"{what}: {error} ({error.sqlite_errorname})")
    if primary in _BUSY:
        return NodeBusy(f"{what}: the database is locked for too long")
    return None
