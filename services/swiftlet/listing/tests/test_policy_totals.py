"""Totals of an account by policy: kept by triggers, whatever changes its rows and whoever does."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from swiftlet.errors import StoreFormatError
from swiftlet.listing import policy_totals
from swiftlet.listing.account_db import AccountDb
from swiftlet.listing.faults import DamagedDatabase
from swiftlet.listing.layout import database_path
from swiftlet.listing.pool import ListingStore
from swiftlet.listing.schema import create_database, open_database
from swiftlet.model import Amounts, ContainerRow, DatabaseKind, DatabaseName
from swiftlet.names import HashPath
from swiftlet.timestamp import ZERO, Timestamp

NAME = DatabaseName("a")
SEEDS = range(5)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[AccountDb]:
    create_database(tmp_path / "a.db", DatabaseKind.ACCOUNT, NAME, tmp_path)
    with closing(open_database(tmp_path / "a.db", DatabaseKind.ACCOUNT)) as connection:
        yield AccountDb(connection)


def row(
    name: str, policy: int, objects: int = 0, size: int = 0, at: int = 5, gone: int = 0, put: int = 5
) -> ContainerRow:
    return ContainerRow(name, Timestamp(put), Timestamp(gone), objects, size, policy, Timestamp(at))


def update(database: AccountDb, *rows: ContainerRow) -> None:
    database.begin()
    database.update(rows)
    database.commit()


def test_rows_that_come_change_and_go(database: AccountDb) -> None:
    update(database, row("c", 0, 1, 10), row("d", 1, 2, 20), row("e", 1, 3, 30))
    assert database.info().policies == {0: Amounts(1, 1, 10), 1: Amounts(2, 5, 50)}
    update(database, row("c", 0, 4, 40, at=6), row("d", 2, 2, 20, at=6))
    assert database.info().policies == {0: Amounts(1, 4, 40), 1: Amounts(1, 3, 30), 2: Amounts(1, 2, 20)}
    update(database, row("e", 1, 0, 0, at=7, gone=7))
    assert database.info().policies == {0: Amounts(1, 4, 40), 2: Amounts(1, 2, 20)}
    update(database, ContainerRow("e", Timestamp(9), ZERO, 1, 1, 0, Timestamp(9)))
    assert database.info().policies == {0: Amounts(2, 5, 41), 2: Amounts(1, 2, 20)}
    database.verify()


@pytest.mark.parametrize("seed", SEEDS)
def test_any_history_adds_up(database: AccountDb, seed: int) -> None:
    chance = random.Random(seed)
    for at in range(10, 60):
        some = [
            row(
                f"c{chance.randrange(100)}",
                chance.randrange(3),
                chance.randrange(9),
                chance.randrange(99),
                chance.randrange(at),
                gone=chance.choice((0, 0, at)),
                put=chance.randrange(at + 5),
            )
            for _ in range(chance.randrange(1, 90))
        ]
        database.begin()
        database.update(some)
        if chance.random() < 0.2:
            database.give_up()
        else:
            database.commit()
    info = database.snapshot().info()
    database.release()
    assert info.policies == policy_totals.count(database.connection) != {}
    sums = [sum(getattr(one, what) for one in info.policies.values()) for what in ("containers", "objects", "bytes")]
    assert sums == [info.container_count, info.object_count, info.bytes_used]
    database.verify()


def test_a_new_account_has_totals_and_none_of_them_counts_anything(database: AccountDb) -> None:
    assert policy_totals.read(database.connection) == {}
    assert policy_totals.agree(database.connection)


@pytest.mark.parametrize(
    "damage", ["UPDATE policy_total SET objects = 7", "DELETE FROM policy_total", "DROP TABLE policy_total"]
)
def test_totals_that_are_wrong_or_missing_are_damage(database: AccountDb, damage: str) -> None:
    update(database, row("c", 0, 1, 10))
    database.connection.execute(damage)
    with pytest.raises(DamagedDatabase, match="by policy"):
        database.verify()


async def test_totals_that_are_damaged_are_found(tmp_path: Path) -> None:
    store = ListingStore(tmp_path, HashPath(b"", b"x"))
    await store.update_containers(1, "a", [row("c", 0, 1, 10)])
    id = store.id_of(1, NAME)
    await store.verify(id)
    with closing(sqlite3.connect(database_path(tmp_path, id))) as other, other:
        other.execute("UPDATE policy_total SET objects = 7")
    with pytest.raises(StoreFormatError, match="by policy"):
        await store.verify(id)
    await store.close()
