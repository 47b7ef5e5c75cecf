"""Accounts and containers of a whole cluster with container servers in trouble."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from swiftlet.errors import NotEmpty, NotFound, PolicyConflict, Superseded, Unavailable
from swiftlet.model import ListingQuery, ObjectRow
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, MemoryCluster, at, reading_order
from swiftlet.testing.storage.memory_listing import Fault

NEW = "another"
Operation = Callable[[MemoryCluster], Awaitable[object]]

CHANGES: dict[str, Operation] = {
    "put": lambda c: c.listings.put_container(ACCOUNT, CONTAINER, at(5), {"A": "5"}, None, 0),
    "post": lambda c: c.listings.post_container(ACCOUNT, CONTAINER, at(5), {"A": "5"}),
}


async def metadata(cluster: MemoryCluster) -> dict[str, str]:
    return dict((await cluster.listings.container_info(ACCOUNT, CONTAINER)).metadata)


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("change", CHANGES)
async def test_changes_survive_the_loss_of_one_replica(cluster: MemoryCluster, change: str, fault: Fault) -> None:
    for device in cluster.container_devices():
        with cluster.databases_down(device, fault=fault):
            await CHANGES[change](cluster)
            assert await metadata(cluster) == {"A": "5"}


async def test_a_container_born_on_handoffs_is_found_there(cluster: MemoryCluster) -> None:
    with cluster.databases_down(*cluster.container_devices(NEW)[:2]):
        assert await cluster.listings.put_container(ACCOUNT, NEW, at(5), {}, None, 1)
        assert (await cluster.listings.container_info(ACCOUNT, NEW)).policy == 1
        await cluster.listings.post_container(ACCOUNT, NEW, at(6), {"A": "6"})
        await cluster.listings.delete_container(ACCOUNT, NEW, at(7))
        with pytest.raises(NotFound):
            await cluster.listings.container_info(ACCOUNT, NEW)


async def test_handoffs_that_never_heard_of_a_container_do_not_make_it_404(cluster: MemoryCluster) -> None:
    for lost in (2, 3):
        with cluster.databases_down(*cluster.container_devices()[:lost]):
            for attempt in (
                cluster.listings.post_container(ACCOUNT, CONTAINER, at(5), {}),
                cluster.listings.delete_container(ACCOUNT, CONTAINER, at(5)),
            ):
                with pytest.raises(Unavailable):
                    await attempt
    with cluster.databases_down(*cluster.container_devices()), pytest.raises(Unavailable):
        await cluster.listings.container_info(ACCOUNT, CONTAINER)
    with cluster.databases_down(*cluster.container_devices(NEW)[:2]), pytest.raises(Unavailable):
        await cluster.listings.container_info(ACCOUNT, NEW)
    with cluster.databases_down(*cluster.container_devices(NEW)[:1]), pytest.raises(NotFound):
        await cluster.listings.container_info(ACCOUNT, NEW)


async def test_too_few_servers_say_what_ails_them(cluster: MemoryCluster) -> None:
    with (
        cluster.databases_down(*cluster.devices),
        pytest.raises(Unavailable, match=r"2 replicas must answer, 0 did .*is unreachable"),
    ):
        await cluster.listings.put_container(ACCOUNT, NEW, at(5), {}, None, 0)


async def test_a_policy_conflict_counts_when_most_replicas_see_it(cluster: MemoryCluster) -> None:
    with pytest.raises(PolicyConflict):
        await cluster.listings.put_container(ACCOUNT, CONTAINER, at(5), {}, 1, 0)
    with cluster.databases_down(cluster.container_devices()[0]), pytest.raises(PolicyConflict):
        await cluster.listings.put_container(ACCOUNT, CONTAINER, at(5), {}, 1, 0)
    assert not await cluster.listings.put_container(ACCOUNT, CONTAINER, at(5), {}, 0, 0)


async def test_a_container_with_objects_stays(cluster: MemoryCluster) -> None:
    await cluster.put(2)
    with pytest.raises(NotEmpty):
        await cluster.listings.delete_container(ACCOUNT, CONTAINER, at(5))
    with cluster.databases_down(cluster.container_devices()[1]), pytest.raises(NotEmpty):
        await cluster.listings.delete_container(ACCOUNT, CONTAINER, at(5))


async def test_changes_older_than_the_deletion_tell_its_time(cluster: MemoryCluster) -> None:
    await cluster.listings.delete_container(ACCOUNT, CONTAINER, at(9))
    with pytest.raises(Superseded) as caught:
        await cluster.listings.put_container(ACCOUNT, CONTAINER, at(8), {}, None, 0)
    assert caught.value.timestamp == at(9)
    assert await cluster.listings.put_container(ACCOUNT, CONTAINER, at(10), {}, None, 1)


async def test_a_listing_comes_from_the_first_replica_that_answers(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = cluster.container_devices()
    reading_order(monkeypatch, first, second, third)
    partition = cluster.container_partition()
    row = ObjectRow("only there", at(3), 1, "e" * 32, "text/plain")
    await cluster.databases[second.name].update_rows(partition, ACCOUNT, CONTAINER, [row])
    await cluster.databases[third.name].delete_container(partition, ACCOUNT, CONTAINER, at(3))
    names = [r.name for r in (await cluster.listings.list_objects(ACCOUNT, CONTAINER, ListingQuery()))[1]]
    assert names == []
    with cluster.databases_down(first):
        names = [r.name for r in (await cluster.listings.list_objects(ACCOUNT, CONTAINER, ListingQuery()))[1]]
        assert names == ["only there"]
    with cluster.databases_down(first, second), pytest.raises(Unavailable):
        await cluster.listings.list_objects(ACCOUNT, CONTAINER, ListingQuery())


async def test_accounts_from_birth_to_death(cluster: MemoryCluster) -> None:
    listings = cluster.listings
    with pytest.raises(NotFound):
        await listings.account_info("AUTH_new")
    with pytest.raises(NotFound):
        await listings.post_account("AUTH_new", at(1), {})
    assert await listings.put_account("AUTH_new", at(2), {"A": "2"})
    partition = cluster.ring.partition_of(cluster.objects._hash_path("AUTH_new"))
    with cluster.databases_down(cluster.ring.primaries(partition)[0]):
        await listings.post_account("AUTH_new", at(3), {"B": "3"})
        assert not await listings.put_account("AUTH_new", at(4), {})
        assert (await listings.account_info("AUTH_new")).metadata == {"A": "2", "B": "3"}
        assert list((await listings.list_containers("AUTH_new", ListingQuery()))[1]) == []
    await listings.delete_account("AUTH_new", at(5))
    with pytest.raises(NotFound):
        await listings.list_containers("AUTH_new", ListingQuery())
