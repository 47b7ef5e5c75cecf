"""Pages as text are what the API makes of the same pages' rows, whatever the rows; where they can't be, rows come."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from swiftlet.api.http.listings import json_row
from swiftlet.boundaries.listings import ListingTransport, PageForm
from swiftlet.errors import NotFound
from swiftlet.listing import shards
from swiftlet.model import DatabaseName, ListingQuery, ObjectRow
from swiftlet.ring.model import Device
from swiftlet.servers.tests.listing_cluster import ListingCluster, http_cluster, memory_cluster
from swiftlet.timestamp import MAX_VALUE, Timestamp

NAMES = [
    "plain",
    "a/b",
    'quo"te',
    "back\\slash",
    "tab\tfeed\x01\x1f\x7f",
    "d\u00e9j\u00e0 \u65e5\u672c",
    "\u2028\U0001f600",
]
TYPES = ["text/plain", "", 'a/b; c="d\\e"', "text/\u00e9", "x/y;swift", "x/y; charset=utf-8"]
STAMPS = [0, 1, (1 << 14) - 1, 1 << 14, Timestamp.at(1_700_000_000.00001, 5).value, Timestamp.at(2e9).value, MAX_VALUE]


def rows() -> list[ObjectRow]:
    made = []
    for number, name in enumerate(NAMES):
        stamp = Timestamp(STAMPS[number % len(STAMPS)])
        made.append(ObjectRow(name, stamp, number * (1 << 49), "e" * number, TYPES[number % len(TYPES)]))
    return made


@pytest.fixture(params=["memory", "http"])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ListingCluster]:
    make = memory_cluster if request.param == "memory" else http_cluster
    async with make(tmp_path, 1) as made:
        await made.transport.put_container(made.devices[0], 0, "a", "c", Timestamp(1), {"Color": "bl\nue"}, None, 3)
        await made.transport.update_rows(made.devices[0], 0, "a", "c", rows())
        yield made


Place = tuple[Device, int, str, str]


async def both(transport: ListingTransport, place: Place, query: ListingQuery) -> None:
    """Compare the texts with what the API makes of the rows."""
    info, page = await transport.list_objects(*place, query)
    assert all(isinstance(row, ObjectRow) for row in page)
    as_json, text = await transport.list_text(*place, query, PageForm.JSON)
    assert as_json == info
    assert isinstance(text, bytes)
    shown = [json_row(row) for row in page]
    assert json.loads(text) == shown
    assert [list(row) for row in json.loads(text)] == [list(row) for row in shown], "fields in the same order"
    as_plain, plain = await transport.list_text(*place, query, PageForm.PLAIN)
    assert as_plain == info
    assert plain == "".join(f"{row.name}\n" for row in page).encode()


@pytest.mark.parametrize(
    "query",
    [
        ListingQuery(),
        ListingQuery(reverse=True),
        ListingQuery(limit=2),
        ListingQuery(limit=0),
        ListingQuery(marker="b", end_marker="q"),
        ListingQuery(marker="q", end_marker="b", reverse=True),
        ListingQuery(prefix="a/"),
        ListingQuery(prefix="nothing"),
        ListingQuery(marker="z", end_marker="b"),
    ],
)
async def test_text_is_what_the_rows_would_be(cluster: ListingCluster, query: ListingQuery) -> None:
    await both(cluster.transport, (cluster.devices[0], 0, "a", "c"), query)


@pytest.mark.parametrize(
    "odd",
    [
        ObjectRow("\0proxys\0own", Timestamp(2), 1, "e", "t"),
        ObjectRow("large", Timestamp(2), 1, "e", f"t;swift_bytes=5;swift_slo_etag={'e' * 32}"),
        ObjectRow("link", Timestamp(2), 0, "e", "t;swift_link=/a/c/o"),
    ],
)
async def test_rows_that_show_something_else_come_as_rows(cluster: ListingCluster, odd: ObjectRow) -> None:
    transport, place = cluster.transport, (cluster.devices[0], 0, "a", "c")
    await transport.update_rows(*place, [odd])
    _, page = await transport.list_text(*place, ListingQuery(), PageForm.JSON)
    assert page == sorted([*rows(), odd], key=lambda row: row.name)
    await both(transport, place, ListingQuery(marker="pl"))


@pytest.mark.parametrize("query", [ListingQuery(delimiter="/"), ListingQuery(path=""), ListingQuery(path="a")])
@pytest.mark.parametrize("form", PageForm)
async def test_pages_with_levels_come_as_rows(cluster: ListingCluster, query: ListingQuery, form: PageForm) -> None:
    transport, place = cluster.transport, (cluster.devices[0], 0, "a", "c")
    assert await transport.list_text(*place, query, form) == await transport.list_objects(*place, query)


async def test_a_container_that_is_split_comes_as_rows(cluster: ListingCluster) -> None:
    store = cluster.stores[cluster.devices[0].name]
    id = store.id_of(0, DatabaseName("a", "c"))
    assert await store.list_text(0, "a", "c", ListingQuery(), PageForm.JSON) is not None
    await store.write(id, lambda database: shards.add_points(database, Timestamp(3), ["m"], True))
    assert await store.list_text(0, "a", "c", ListingQuery(), PageForm.JSON) is None


async def test_what_is_not_there(cluster: ListingCluster) -> None:
    with pytest.raises(NotFound):
        await cluster.transport.list_text(cluster.devices[0], 0, "a", "other", ListingQuery(), PageForm.JSON)
