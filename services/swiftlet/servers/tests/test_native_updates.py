"""The native half of the container server: its report, its metrics, its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from prometheus_client import REGISTRY
from swiftlet_native import UpdateTable

from swiftlet.servers.containers.native_updates import (
    NativeUpdates,
    NativeUpdatesSettings,
    UpdateCounts,
    table_status,
)
from swiftlet.testing.storage.memory_updates import MemoryUpdates
from swiftlet.testing.storage.updates_conformance import PLACE, packed_row

KEYS = [b"a key of the tests that is long enough"]
SETTINGS = NativeUpdatesSettings("127.0.0.1:6300", "machine", 16 << 20)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[UpdateTable]:
    made = UpdateTable(tmp_path, "d")
    yield made
    made.stop()


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"swiftlet_updates_{name}", {"device": "of-the-counts", **labels}) or 0.0


def test_the_counters_of_a_table_are_in_the_metrics() -> None:
    table = MemoryUpdates()
    counts = UpdateCounts({"of-the-counts": table})
    counts.measure()
    assert not table.take(*PLACE, [packed_row("a")])
    table.open(*PLACE)
    assert table.take(*PLACE, [packed_row("a"), packed_row("b")])
    for _ in range(2):
        counts.measure()
    assert counted("rows_total") == counted("waiting_rows") == 2
    assert counted("refused_total", reason="not-taken") == counted("open_databases") == 1
    assert counted("refused_total", reason="busy") == 0
    table.take_out(*PLACE)
    table.folded(*PLACE, True)
    counts.measure()
    assert (counted("rows_total"), counted("waiting_rows")) == (2, 0)
    table.stop()


def test_the_status_of_both_tables_has_the_same_fields(table: UpdateTable) -> None:
    twin = MemoryUpdates()
    assert table_status(table).keys() == table_status(twin).keys()
    assert {"journalBytes", "notTaken", "failed"} <= table_status(table).keys()
    twin.stop()


async def test_it_listens_and_ends(table: UpdateTable) -> None:
    server = NativeUpdates({"d": table}, KEYS, SETTINGS)
    port = server.listen("127.0.0.1", 0)
    assert server.status() == {"port": port, "clients": 0}
    assert server.transports() == {}
    other = NativeUpdates({"d": table}, KEYS, SETTINGS)
    with pytest.raises(OSError):
        other.listen("127.0.0.1", port)
    app = web.Application()
    for one in (server, other):
        running = one.run(app)
        await anext(running)
        await one.leave(app)
        with pytest.raises(StopAsyncIteration):
            await anext(running)
