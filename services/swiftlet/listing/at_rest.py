"""Reads the fingerprints of databases that nobody has open.

A device that starts has to know the fingerprints of all its databases before it can be compared with others. To open a
database for use, with a log and locks, takes several times longer than to read its head from a file that nobody
changes. A file at rest has no log beside it: SQLite removes the log when the last connection closes, once all of it is
in the file. The log of a process that was killed is still there, and its database has to be opened.

Fault model: a file that can't be read this way, whatever the reason, is left out; who opens it for use finds out why.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from swiftlet.errors import SwiftletError
from swiftlet.listing import sethash
from swiftlet.listing.database import read_items, state_of
from swiftlet.listing.head import read_head
from swiftlet.listing.layout import database_path
from swiftlet.listing.schema import open_at_rest
from swiftlet.model import DatabaseId


def fingerprints_at_rest(root: Path, ids: Iterable[DatabaseId]) -> dict[DatabaseId, bytes]:
    """Return the fingerprints of those databases of a device that are at rest.

    The caller sees to it that nobody has these databases open, or ignores what is returned of those that somebody
    began to use meanwhile.
    """
    found = {}
    for id in ids:
        with contextlib.suppress(sqlite3.Error, OSError, SwiftletError):
            path = database_path(root, id)
            if not os.path.exists(f"{path}-wal"):
                found[id] = _fingerprint(id, path)
    return found


def _fingerprint(id: DatabaseId, path: Path) -> bytes:
    with contextlib.closing(open_at_rest(path, id.kind)) as connection:
        return sethash.fingerprint(state_of(read_head(connection), read_items(connection)))
