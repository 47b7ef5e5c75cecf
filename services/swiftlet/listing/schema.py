"""The databases' tables, and opening and creating their files.

Fault model. Power may fail at any moment: WAL with `synchronous=FULL` syncs the log before a COMMIT returns (for
commits that need not wait see `swiftlet.listing.late_sync`), and SQLite drops a half-written tail of the log by its
checksums. A new database is built under a temporary name, synced and renamed, and its directories are synced up to the
device's root, so that a database either exists with its tables or not at all. A file may be truncated or overwritten:
that is found when SQLite reads it (or by `verify`, which recomputes the rows' set hash, since SQLite's pages carry no
checksums). Nothing protects against removing `*-wal` files by hand.

Timestamps are unsigned 64-bit numbers and SQLite's integers are signed: columns hold `value - 2^63`, which keeps the
order. Names compare as UTF-8 bytes, SQLite's BINARY collation.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from swiftlet.errors import StoreFormatError
from swiftlet.formats import other_version
from swiftlet.listing import policy_totals
from swiftlet.listing.faults import DamagedDatabase
from swiftlet.model import DatabaseKind, DatabaseName
from swiftlet.timestamp import NONCE_BITS, Timestamp

SCHEMA_VERSION = 1
"""`user_version` of the files; others are refused."""
APPLICATION_IDS = {DatabaseKind.CONTAINER: 0x53774C63, DatabaseKind.ACCOUNT: 0x53774C61}
"""`application_id` of the files: "SwLc" and "SwLa"."""
BUSY_TIMEOUT_S = 10.0
"""Seconds for which a connection waits while another one closes or recovers the same database."""
OFFSET = 1 << 63
"""The difference between a timestamp's value and its column."""
TICKS_BELOW_ZERO = OFFSET >> NONCE_BITS
"""The difference between a timestamp's ticks and those of a column."""

_COMMON = f"""
CREATE TABLE info (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    account TEXT NOT NULL,
    container TEXT,
    created INTEGER NOT NULL DEFAULT {-OFFSET},
    put_timestamp INTEGER NOT NULL DEFAULT {-OFFSET},
    delete_timestamp INTEGER NOT NULL DEFAULT {-OFFSET},
    policy INTEGER NOT NULL DEFAULT 0,
    row_count INTEGER NOT NULL DEFAULT 0,
    object_count INTEGER NOT NULL DEFAULT 0,
    bytes_used INTEGER NOT NULL DEFAULT 0,
    rows_digest BLOB NOT NULL,
    reported_put INTEGER NOT NULL DEFAULT {-OFFSET},
    reported_delete INTEGER NOT NULL DEFAULT {-OFFSET},
    reported_objects INTEGER NOT NULL DEFAULT 0,
    reported_bytes INTEGER NOT NULL DEFAULT 0,
    reported_policy INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE metadata (
    name TEXT NOT NULL PRIMARY KEY,
    timestamp INTEGER NOT NULL,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
"""

_OBJECT_COLUMNS = """
    name TEXT NOT NULL PRIMARY KEY,
    timestamp INTEGER NOT NULL,
    size INTEGER NOT NULL,
    etag TEXT NOT NULL,
    content_type TEXT NOT NULL,
    content_type_timestamp INTEGER,
    meta_timestamp INTEGER
"""

_CONTAINER_COLUMNS = """
    name TEXT NOT NULL PRIMARY KEY,
    put_timestamp INTEGER NOT NULL,
    delete_timestamp INTEGER NOT NULL,
    object_count INTEGER NOT NULL,
    bytes_used INTEGER NOT NULL,
    policy INTEGER NOT NULL,
    reported INTEGER NOT NULL
"""


def _rows(columns: str, age: str) -> str:
    return f"""
CREATE TABLE live ({columns}) STRICT, WITHOUT ROWID;
CREATE TABLE marker ({columns}) STRICT, WITHOUT ROWID;
CREATE INDEX marker_age ON marker ({age});
"""


_SCHEMAS = {
    DatabaseKind.CONTAINER: _COMMON + _rows(_OBJECT_COLUMNS, "timestamp"),
    DatabaseKind.ACCOUNT: _COMMON + _rows(_CONTAINER_COLUMNS, "delete_timestamp") + policy_totals.SCHEMA,
}


_SHARDS = """
CREATE TABLE IF NOT EXISTS shard (
    point TEXT NOT NULL PRIMARY KEY,
    upper TEXT,
    objects INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    complete INTEGER NOT NULL
) STRICT, WITHOUT ROWID
"""


def ensure_shard_table(connection: sqlite3.Connection) -> None:
    """Create the table of shards when a container is split for the first time; within a transaction."""
    connection.execute(_SHARDS)


def has_shard_table(connection: sqlite3.Connection) -> bool:
    """Return whether the container was ever split on this device."""
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'shard'")
    return found.fetchone() is not None


def stored(timestamp: Timestamp) -> int:
    """Return the value of a timestamp's column."""
    return timestamp.value - OFFSET


def loaded(column: int) -> Timestamp:
    """Return the timestamp in a column."""
    return Timestamp(column + OFFSET)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=64,
    )
    try:
        for pragma in ("synchronous=FULL", "trusted_schema=OFF", "cell_size_check=ON", "temp_store=MEMORY"):
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def open_database(path: Path, kind: DatabaseKind, cache_kib: int = 2048) -> sqlite3.Connection:
    """Return a connection to an existing database.

    Raises DamagedDatabase when the file is not one of ours, StoreFormatError when it has another version, and errors of
    SQLite, which `swiftlet.listing.faults` translates.
    """
    connection = _connect(path, "rw")
    try:
        _check(connection, path, kind)
        connection.execute(f"PRAGMA cache_size=-{cache_kib}")
        connection.execute("PRAGMA journal_size_limit=16777216")
    except BaseException:
        connection.close()
        raise
    return connection


def open_at_rest(path: Path, kind: DatabaseKind) -> sqlite3.Connection:
    """Return a connection that only reads an existing database, with the errors of `open_database`.

    It takes no locks and looks for no log: what it reads is right only while no log exists and nobody else has the
    database open.
    """
    uri = f"file:{quote(str(path))}?mode=ro&immutable=1"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, cached_statements=0)
    try:
        for pragma in ("trusted_schema=OFF", "cell_size_check=ON"):
            connection.execute(f"PRAGMA {pragma}")
        _check(connection, path, kind)
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection, path: Path, kind: DatabaseKind) -> None:
    """Raise an error unless the file has a database of this kind and of our version."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application != APPLICATION_IDS[kind]:
        raise DamagedDatabase(f"{path} is not a database of {kind.value} (application_id {application:#x})")
    if version != SCHEMA_VERSION:
        raise StoreFormatError(other_version(f"database {path}", version, SCHEMA_VERSION))


def relax(connection: sqlite3.Connection, relaxed: bool) -> None:
    """Set whether COMMITs return before the log is synced; outside of a transaction."""
    connection.execute(f"PRAGMA synchronous={'NORMAL' if relaxed else 'FULL'}")


def create_database(path: Path, kind: DatabaseKind, name: DatabaseName, root: Path) -> None:
    """Create an empty database, never PUT and without rows, at `path` below `root`; it is durable on return."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    connection = _connect(fresh, "rwc")
    try:
        # Nobody sees the file before it is synced as a whole: syncs and a journal on the way would protect nothing.
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("PRAGMA journal_mode=MEMORY")
        marks = f"PRAGMA application_id={APPLICATION_IDS[kind]}; PRAGMA user_version={SCHEMA_VERSION};"
        connection.executescript(f"BEGIN; {_SCHEMAS[kind]} {marks}")
        connection.execute(
            "INSERT INTO info (id, account, container, rows_digest) VALUES (1, ?, ?, ?)",
            (name.account, name.container, bytes(16)),
        )
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode=WAL")
    finally:
        connection.close()
    _sync(fresh)
    fresh.rename(path)
    sync_directories(path.parent, root)


def sync_directories(lowest: Path, root: Path) -> None:
    """Make directory entries durable from `lowest` up to and including `root`."""
    directory = lowest
    while True:
        _sync(directory)
        if directory == root:
            return
        directory = directory.parent


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
