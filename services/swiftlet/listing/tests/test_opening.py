"""Opening a database while others close, remove and make it: that is no failure of the device."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from swiftlet.errors import NotFound
from swiftlet.listing import writer
from swiftlet.listing.faults import DamagedDatabase
from swiftlet.listing.layout import database_path
from swiftlet.listing.schema import create_database, open_database
from swiftlet.listing.writer import opened
from swiftlet.model import DatabaseId, DatabaseKind, DatabaseName

ID = DatabaseId(DatabaseKind.CONTAINER, 3, bytes(16))
NAME = DatabaseName("a", "c")
READERS = 3


def read(path: Path, until_s: float) -> Counter[str]:
    seen: Counter[str] = Counter()
    while time.monotonic() < until_s:
        try:
            database = opened(ID, path, 100)
        except NotFound:
            seen["none"] += 1
            continue
        try:
            assert not database.snapshot().rows("", "", 1)
            database.release()
        finally:
            database.connection.close()
        seen["read"] += 1
    return seen


def remove_and_make(path: Path, root: Path, until_s: float) -> None:
    trash = root / "trash"
    trash.mkdir()
    while time.monotonic() < until_s:
        create_database(path, ID.kind, NAME, root)
        opened(ID, path, 100).connection.close()
        home = trash / os.urandom(4).hex()
        path.parent.rename(home)
        shutil.rmtree(home)


def test_while_it_comes_and_goes(tmp_path: Path) -> None:
    """With one attempt each, openings fail here and there."""
    path, until_s = database_path(tmp_path, ID), time.monotonic() + 3.0
    with ThreadPoolExecutor(READERS + 1) as threads:
        making = threads.submit(remove_and_make, path, tmp_path, until_s)
        readers = [threads.submit(read, path, until_s) for _ in range(READERS)]
        making.result()
        seen = sum((reader.result() for reader in readers), Counter[str]())
    assert seen["read"]
    assert seen["none"]


class Opening:
    """Can't open anything so many times."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.attempts = 0

    def __call__(self, path: Path, kind: DatabaseKind, cache_kib: int) -> sqlite3.Connection:
        self.attempts += 1
        if self.attempts > self.failures:
            return open_database(path, kind, cache_kib)
        missing = path.parent / "no such directory" / "db"
        return sqlite3.connect(f"file:{missing}?mode=rw", uri=True)


@pytest.mark.parametrize(("code", "attempts"), [(sqlite3.SQLITE_IOERR_SHORT_READ, 2), (sqlite3.SQLITE_FULL, 1)])
def test_only_what_may_pass_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, attempts: int
) -> None:
    path = database_path(tmp_path, ID)
    create_database(path, ID.kind, NAME, tmp_path)
    made = 0

    def fails_once(*arguments: Any) -> sqlite3.Connection:
        nonlocal made
        made += 1
        if made > 1:
            return open_database(*arguments)
        error = sqlite3.OperationalError("as SQLite reports it")
        error.sqlite_errorcode = code
        raise error

    monkeypatch.setattr(writer, "open_database", fails_once)
    if attempts > 1:
        opened(ID, path, 100).connection.close()
    else:
        with pytest.raises(sqlite3.OperationalError):
            opened(ID, path, 100)
    assert made == attempts


def test_it_is_tried_again_for_a_moment_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = database_path(tmp_path, ID)
    create_database(path, ID.kind, NAME, tmp_path)
    few = Opening(2)
    monkeypatch.setattr(writer, "open_database", few)
    opened(ID, path, 100).connection.close()
    assert few.attempts == 3
    many = Opening(1000)
    monkeypatch.setattr(writer, "open_database", many)
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        opened(ID, path, 100)
    assert many.attempts == 1 + len(writer._PAUSES_S)
    path.unlink()
    with pytest.raises(NotFound):
        opened(ID, path, 100)
    assert many.attempts == 2 + len(writer._PAUSES_S), "what is not there is not waited for"


@pytest.mark.parametrize("content", [b"", b"\xff" * 8192, b"SQLite format 3\0" + bytes(4080)])
def test_what_is_no_database_is_closed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    made: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def remembered(*arguments: Any, **options: Any) -> sqlite3.Connection:
        made.append(connect(*arguments, **options))
        return made[-1]

    path = tmp_path / "a.db"
    path.write_bytes(content)
    monkeypatch.setattr(sqlite3, "connect", remembered)
    with pytest.raises((DamagedDatabase, sqlite3.DatabaseError)):
        open_database(path, ID.kind)
    [connection] = made
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
