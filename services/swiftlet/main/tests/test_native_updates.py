"""Container servers and updates that native code takes, as the settings wire them: port, report, start and end."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web
from swiftlet_native import UpdateTable

from swiftlet.errors import SettingsError
from swiftlet.listing.pool import ListingStore
from swiftlet.listing.tests.crash_taker import Row
from swiftlet.main.services import container
from swiftlet.model import ListingQuery, ObjectRow
from swiftlet.names import HashPath
from swiftlet.settings import ContainerSettings
from swiftlet.testing.ports import object_ports
from swiftlet.testing.storage.updates_conformance import packed_row
from swiftlet.timestamp import Timestamp
from swiftlet.web.statusz import STATUS

PLACE = (0, "a", "c")
OFFSET = 1000
SUFFIX = "suffix of the tests"


class Served:
    """A container server with one device."""

    def __init__(self, root: Path) -> None:
        self.root = root
        [self.port] = object_ports(1, OFFSET)
        (root / "rings").mkdir()
        (root / "d0").mkdir()

    @asynccontextmanager
    async def served(self, **more: Any) -> AsyncIterator[web.Application]:
        cluster = {
            "key": "the key of the tests, which is long enough for it",
            "hash_path_suffix": SUFFIX,
            "rings": self.root / "rings",
            "native_port_offset": OFFSET,
            "native_pool_bytes": 16 << 20,
        }
        section = {"host": "127.0.0.1", "port": self.port, "devices_dir": self.root, "devices": ["d0"], **more}
        app = container.create_app(ContainerSettings.model_validate({"cluster": cluster, "container": section}))
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            yield app
        finally:
            await runner.cleanup()

    def listens(self) -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port + OFFSET)) == 0

    @asynccontextmanager
    async def store(self) -> AsyncIterator[tuple[ListingStore, UpdateTable]]:
        """The device's databases and table, without a server."""
        tables: list[UpdateTable] = []

        def make_table(directory: Path) -> UpdateTable:
            tables.append(UpdateTable(directory, "d0"))
            return tables[0]

        store = ListingStore(self.root / "d0", HashPath(b"", SUFFIX.encode()), make_table=make_table)
        try:
            yield store, tables[0]
        finally:
            await store.close()


@pytest.fixture
def place(tmp_path: Path) -> Served:
    return Served(tmp_path)


async def test_it_listens_natively_and_reports_it(place: Served) -> None:
    async with place.served() as app:
        report = json.loads(app[STATUS].report())
        assert report["native"] == {"port": place.port + OFFSET, "clients": 0}
        assert report["updates"]["d0"]["rows"] == 0
        assert report["encryption"] == {"mode": "none", "ready": True}
        assert place.listens()
    assert not place.listens()


async def test_it_can_be_turned_off_and_merges_what_is_left_all_the_same(place: Served, tmp_path: Path) -> None:
    async with place.store() as (store, table):
        await store.put_container(*PLACE, Timestamp(1), {}, None, 0)
        await store.update_rows(*PLACE, [ObjectRow("o", Timestamp(2), 1)])
        assert table.take(*PLACE, [cast(Row, packed_row("p"))])
        copy = tmp_path / "journal"
        copy.mkdir()
        for file in (place.root / "d0" / "updates").iterdir():
            (copy / file.name).write_bytes(file.read_bytes())
    for file in copy.iterdir():
        (place.root / "d0" / "updates" / file.name).write_bytes(file.read_bytes())
    async with place.served(native_updates=False) as app:
        assert not place.listens()
        assert "native" not in json.loads(app[STATUS].report())
    async with place.store() as (store, table):
        assert table.databases() == []
        assert [entry.name for entry in (await store.list_objects(*PLACE, ListingQuery()))[1]] == ["o", "p"]


async def test_a_port_that_is_taken(place: Served) -> None:
    with (
        socket.create_server(("127.0.0.1", place.port + OFFSET)),
        pytest.raises(SettingsError, match=r"can't listen on port .* or set container\.native_updates to false"),
    ):
        async with place.served():
            pass
