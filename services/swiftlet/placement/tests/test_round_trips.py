"""How many trips over the wide area an operation takes: a number, not a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path as Directory

import pytest

from swiftlet.model import ListingQuery
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, at
from swiftlet.placement.tests.sites import Site, sites
from swiftlet.ring.model import WriteQuorum

OTHER = Path(ACCOUNT, CONTAINER, "other")


async def listed(site: Site) -> None:
    """Read a page of the container's listing."""
    await site.listings.list_objects(ACCOUNT, CONTAINER, ListingQuery())


async def cold(site: Site) -> None:
    """Read what a proxy has to know that knows nothing yet, and an object."""
    await site.listings.account_info(ACCOUNT)
    await site.listings.container_info(ACCOUNT, CONTAINER)
    await site.read()


OPERATIONS: dict[str, Callable[[Site], Awaitable[object]]] = {
    "PUT small": lambda site: site.put(10, path=OTHER),
    "PUT large": lambda site: site.upload(11, b"x" * 5000, OTHER),
    "POST": lambda site: site.post(12),
    "GET": lambda site: site.read(),
    "HEAD": lambda site: site.head(),
    "X-Newest": lambda site: site.read(newest=True),
    "DELETE": lambda site: site.delete(13, OTHER),
    "404": lambda site: _absent(site),
    "listing": listed,
    "cold GET": cold,
}


async def _absent(site: Site) -> None:
    with pytest.raises(Exception, match="does not exist"):
        await site.read(Path(ACCOUNT, CONTAINER, "never"))


@pytest.mark.parametrize(
    ("quorum", "more"),
    [
        ("majority", {}),
        ("each-region", {}),
        # Of what was handed on the region has one copy, and a POST needs two.
        ("local", {"PUT small": 0, "PUT large": 0, "DELETE": 0}),
    ],
)
async def test_trips_of_each_operation(tmp_path: Directory, quorum: WriteQuorum, more: dict[str, int]) -> None:
    async with sites(tmp_path, quorum) as made:
        site = made["east"]
        await site.listings.put_account(ACCOUNT, at(1), {})
        await site.put(2)
        await made.rounds()
        found = {}
        for name, operation in OPERATIONS.items():
            found[name] = await site.wide_area.trips(operation(site))
            await site.settle()
    assert found == {
        "PUT small": 1,
        # Its bytes are sent right behind the question whether devices take it.
        "PUT large": 1,
        "POST": 1,
        "GET": 0,
        "HEAD": 0,
        "X-Newest": 1,
        "DELETE": 1,
        "404": 1,
        "listing": 0,
        "cold GET": 0,
        **more,
    }
