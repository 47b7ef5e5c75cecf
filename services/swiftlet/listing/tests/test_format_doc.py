"""`docs/data-on-disk.md` against the listing databases: paths, tables, columns, set hash and fingerprint."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from pathlib import Path

import pytest
import xxhash

from swiftlet.listing.pool import ListingStore
from swiftlet.model import DatabaseKind, DatabaseName, ObjectRow
from swiftlet.names import HashPath
from swiftlet.timestamp import Timestamp

PAGE = Path(__file__).resolve().parents[4] / "docs/data-on-disk.md"
PUT, ROW = Timestamp.at(1_700_000_000), Timestamp.at(1_700_000_001, 7)


def documented_columns() -> set[tuple[str, str, str]]:
    """(table, column, type) of the page's table of tables."""
    rows = re.findall(r"^\| `(\w+)` \| (`[^|]+) \| (INTEGER|TEXT|BLOB) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    return {(table, name, kind) for table, names, kind in rows for name in re.findall(r"`(\w+)`", names)}


def documented_rows(database: str) -> list[tuple[str, str]]:
    """(column, type) of `live` and `marker`."""
    [text] = re.findall(rf"^\| {database} \| (`name` TEXT.*(?:\n\| \| .*)?)", PAGE.read_text("utf-8"), re.MULTILINE)
    return re.findall(r"`(\w+)`(?:\*\*)? (INTEGER|TEXT)", text)


def documented_totals(database: str) -> list[str]:
    """Columns of the table of totals by policy."""
    if database != "account":
        return []
    [text] = re.findall(r"`policy_total`, with a row of (.*?) for each", " ".join(PAGE.read_text("utf-8").split()))
    return re.findall(r"`(\w+)`", text)


def columns_of(database: sqlite3.Connection, table: str) -> list[tuple[str, str]]:
    return [(name, kind) for _, name, kind, *_ in database.execute(f"PRAGMA table_info({table})")]


@pytest.fixture
async def root(tmp_path: Path) -> Path:
    """A device with a container, one row in it, and an account; closed."""
    store = ListingStore(tmp_path, HashPath(b"before", b"behind"))
    await store.put_container(5, "a", "c", PUT, {"X-Container-Meta-É": "ü"}, 1, 0)
    await store.update_rows(5, "a", "c", [ObjectRow("ö", ROW, 5, "etag", "text/plain")])
    await store.put_account(6, "a", PUT, {})
    await store.close()
    return tmp_path


def open_as_documented(root: Path, kind: str, partition: int, name: str) -> sqlite3.Connection:
    digest = hashlib.md5(b"before" + name.encode() + b"behind", usedforsecurity=False).hexdigest()
    return sqlite3.connect(root / kind / str(partition) / digest[-3:] / digest / f"{digest}.db")


@pytest.mark.parametrize(
    ("kind", "partition", "name", "mark", "database"),
    [("containers", 5, "/a/c", b"SwLc", "container"), ("accounts", 6, "/a", b"SwLa", "account")],
)
def test_tables_are_those_of_the_page(
    root: Path, kind: str, partition: int, name: str, mark: bytes, database: str
) -> None:
    connection = open_as_documented(root, kind, partition, name)
    try:
        assert connection.execute("PRAGMA application_id").fetchone()[0] == int.from_bytes(mark, "big")
        assert connection.execute("PRAGMA user_version").fetchone()[0] == 1
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        made = {(table, *column) for table in ("info", "metadata") for column in columns_of(connection, table)}
        assert made == documented_columns()
        assert documented_rows(database) == columns_of(connection, "live") == columns_of(connection, "marker")
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        more = {"policy_total"} if database == "account" else set()
        assert tables == {"info", "metadata", "live", "marker"} | more
        assert [name for name, _ in columns_of(connection, "policy_total")] == documented_totals(database)
    finally:
        connection.close()


def test_values_are_kept_as_the_page_says(root: Path) -> None:
    connection = open_as_documented(root, "containers", 5, "/a/c")
    try:
        rows = connection.execute("SELECT * FROM live").fetchall()
        digest = connection.execute("SELECT rows_digest FROM info").fetchone()[0]
    finally:
        connection.close()
    assert rows == [("ö", ROW.value - 2**63, 5, "etag", "text/plain", None, None)]
    assert digest == xxhash.xxh3_128_digest(f"{ROW.value},0,0,0,5,1,4,öetagtext/plain".encode())


async def test_the_fingerprint_is_that_of_the_page(root: Path) -> None:
    store = ListingStore(root, HashPath(b"before", b"behind"))
    found = await store.fingerprint(store.id_of(5, DatabaseName("a", "c")))
    [id_] = await store.databases(DatabaseKind.CONTAINER, 5)
    await store.close()
    assert id_.digest == hashlib.md5(b"before/a/cbehind", usedforsecurity=False).digest()
    item, value = "X-Container-Meta-É".encode(), "ü".encode()
    text = xxhash.xxh3_128_digest(f"{ROW.value},0,0,0,5,1,4,öetagtext/plain".encode())
    text += b"%d,%d,0,1;%d,%d,%d," % (PUT.value, PUT.value, PUT.value, len(item), len(value)) + item + value
    assert found == xxhash.xxh3_128_digest(text)
