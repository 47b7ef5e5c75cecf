"""What a store does later with what any way has stored: objects expire with their rows, a device gets what it has
missed, a fragment that was lost is made again. All ways agree about what there is then.

A test class derives from `UpkeepContract` and says which store, with an expirer and a replicator that do not wait long.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

import pytest

from swiftlet.boundaries.coded import CodedPlaces
from swiftlet.client.client import AsyncClient
from swiftlet.errors import NotFound, SwiftletError
from swiftlet.model import ObjectKey
from swiftlet.names import HashPath
from swiftlet.ring import Ring
from swiftlet.ring.model import Coding
from swiftlet.testing.ways.agreement import DATA, LARGE, is_gone, names_in, until
from swiftlet.transport.native_coded_repair import NativeCodedRepair
from swiftlet.transport.native_objects import NativeObjectTransport

CODING = Coding(2, 1, 1024)
"""The coding of the policy `coded`: every object server has a fragment of each object."""
GOLD, CODED = 0, 1
"""The policies' numbers; the first one is the default."""


class Store(Protocol):
    """A store with three object servers of one device each, in the order of the rings' devices."""

    hash_path: HashPath

    def client(self, way: str) -> AsyncClient:
        """Return a client that goes this way."""

    async def make(self, container: str, policy: int) -> None:
        """Create a container; return when grants rest on what is known since then."""

    def ring(self, policy: int) -> Ring:
        """Return the ring of a policy."""

    async def stop_objects(self, *numbers: int) -> None:
        """End the object servers with these numbers, and return when they have ended."""

    async def start_objects(self, *numbers: int) -> None:
        """Start object servers again, and return when they answer."""

    async def empty_device(self, number: int) -> None:
        """Remove all that the device of a stopped object server has."""

    def devices(self) -> AbstractAsyncContextManager[NativeObjectTransport]:
        """Return calls to single devices, as a member of the cluster."""


def place_of(store: Store, policy: int, container: str, name: str) -> ObjectKey:
    """Return where an object of the account of the tests is."""
    digest = store.hash_path("AUTH_test", container, name)
    return ObjectKey(policy, store.ring(policy).partition_of(digest), digest)


class UpkeepContract:
    """Derive from it, with fixtures `cluster` (a store), `stores` (a client of each of its ways) and `container` (the
    name of one that is new and empty, in the default policy).
    """

    expires_after_s = 2
    """Seconds after which objects expire: more than a request takes."""

    @pytest.mark.parametrize("policy", [GOLD, CODED])
    async def test_what_expires_goes_with_its_row_whichever_way_it_was_stored(
        self, cluster: Store, stores: dict[str, AsyncClient], container: str, policy: int
    ) -> None:
        """The expirer removes it, and nothing that was stored over it without a time."""
        if policy == CODED:
            container = f"{container}_coded"
            await cluster.make(container, policy)
        when = {"X-Delete-After": str(self.expires_after_s)}
        for way, store in stores.items():
            for name in (f"expires/{way}", f"stays/{way}"):
                await store.put(container, name, DATA, headers=when)
            await store.put(container, f"posted/{way}", DATA)
            await store.post(container, f"posted/{way}", {}, headers=when)
        for after, way in zip(reversed(stores.values()), stores, strict=True):
            await after.put(container, f"stays/{way}", DATA)
        stay = sorted(f"stays/{way}" for way in stores)
        for store in stores.values():

            async def are_unlisted(store: AsyncClient = store) -> bool:
                return await names_in(store, container) == stay

            await until(are_unlisted)
            assert [(await store.get(container, name)).data for name in stay] == [DATA] * len(stay)
            for way in stores:
                assert await is_gone(store, container, f"expires/{way}")
                assert await is_gone(store, container, f"posted/{way}")

    async def test_what_a_device_has_missed_it_gets_and_serves_to_all_ways(
        self, cluster: Store, stores: dict[str, AsyncClient], container: str
    ) -> None:
        """Its server is down while each way stores, replaces and deletes; later it is the only one that is there."""
        names = [(way, size) for way in stores for size in (len(DATA), len(LARGE))]
        for way, size in names:
            await stores[way].put(container, f"replaced/{way}/{size}", b"older")
            await stores[way].put(container, f"deleted/{way}/{size}", LARGE[:size])
        await cluster.stop_objects(0)
        for way, size in names:
            await stores[way].put(container, f"replaced/{way}/{size}", LARGE[:size])
            await stores[way].put(container, f"new/{way}/{size}", LARGE[:size])
            await stores[way].delete(container, f"deleted/{way}/{size}")
        await cluster.start_objects(0)
        device = cluster.ring(GOLD).devices[0]
        assert device is not None
        async with cluster.devices() as objects:
            for way, size in names:
                for kind in ("replaced", "new", "deleted"):

                    async def has_it(name: str = f"{kind}/{way}/{size}", size: int = size) -> bool:
                        try:
                            info = await objects.head(device, place_of(cluster, GOLD, container, name))
                        except NotFound:
                            return name.startswith("deleted")
                        except SwiftletError:
                            return False
                        return info.size == size and not name.startswith("deleted")

                    await until(has_it)
        await cluster.stop_objects(1, 2)
        try:
            for way in stores:
                # One that has not been told of servers that are down.
                async with cluster.client(way) as store:
                    for by, size in names:
                        for kind in ("replaced", "new"):
                            assert (await store.get(container, f"{kind}/{by}/{size}")).data == LARGE[:size]
                    assert store.over_http == 0
        finally:
            await cluster.start_objects(1, 2)

    async def test_a_fragment_that_was_lost_is_made_again_and_serves_all_ways(
        self, cluster: Store, stores: dict[str, AsyncClient]
    ) -> None:
        """A device comes back empty; later another one is down, so that every read needs what was made."""
        container, ring = "fragments", cluster.ring(CODED)
        await cluster.make(container, CODED)
        for way, store in stores.items():
            await store.put(container, way, LARGE)
        lost = ring.devices[0]
        assert lost is not None
        await cluster.stop_objects(0)
        await cluster.empty_device(0)
        await cluster.start_objects(0)
        async with cluster.devices() as objects:
            repair = NativeCodedRepair(objects.coded)
            for way in stores:
                key = place_of(cluster, CODED, container, way)
                places = CodedPlaces.in_ring(key, CODING, ring)
                number = [device.device for device in places.at].index(lost.device)

                async def is_back(places: CodedPlaces = places, number: int = number) -> bool:
                    try:
                        return await repair.show(places.at[number], places.key_at(number)) is not None
                    except SwiftletError:
                        return False

                await until(is_back)
        await cluster.stop_objects(1)
        try:
            for way in stores:
                async with cluster.client(way) as store:
                    assert [(await store.get(container, by)).data for by in stores] == [LARGE] * len(stores)
        finally:
            await cluster.start_objects(1)
