"""What still uses a deprecated policy: who is counted, what proves that nothing is left, and what is refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from swiftlet.errors import PolicyConflict
from swiftlet.listing import shards
from swiftlet.listing.pool import ListingStore
from swiftlet.listing.shards import shard_name
from swiftlet.model import ContainerRow, DatabaseName, ObjectRow
from swiftlet.policy_moves import ITEM, Phase, PolicyMove
from swiftlet.servers.containers import policy_tally
from swiftlet.servers.containers.policy_tally import PolicyTally
from swiftlet.servers.tests.listing_cluster import HASH_PATH
from swiftlet.settings.sections import PolicySection
from swiftlet.timestamp import Timestamp
from swiftlet.web.statusz import MAX_BYTES

GOLD = PolicySection(index=0, name="gold", default=True)
SILVER = PolicySection(index=3, name="silver")
GRACE_S = 300.0


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


class Server:
    """A container server's stores and its tally."""

    def __init__(self, **stores: ListingStore) -> None:
        self.clock = Clock()
        self.policies = [GOLD, SILVER]
        self.stores = stores
        self.tally = PolicyTally(stores, lambda: self.policies, lambda *_: True, 60.0, GRACE_S, self.clock)

    def deprecate(self) -> None:
        self.policies = [GOLD, SILVER.model_copy(update={"deprecated": True})]
        self.tally.look()

    async def used(self) -> dict[str, object]:
        """What a walk finds of silver."""
        await self.tally.walk()
        report = self.tally.report()
        assert report is not None
        used = report["used"]
        assert isinstance(used, dict)
        found = used["3"]
        assert isinstance(found, dict)
        return found


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ListingStore]:
    monkeypatch.setattr(policy_tally, "PAUSE_S", 0)
    made = ListingStore(tmp_path / "d0", HASH_PATH)
    yield made
    await made.close()


async def put(store: ListingStore, account: str, container: str, policy: int, objects: int = 0) -> None:
    await store.put_container(1, account, container, Timestamp(10), {}, None, policy)
    rows = [ObjectRow(f"o{number}", Timestamp(20), 5, "e", "t") for number in range(objects)]
    await store.update_rows(1, account, container, rows)
    row = ContainerRow(container, Timestamp(10), object_count=objects, policy=policy, reported=Timestamp(20))
    await store.update_containers(2, account, [row])


async def test_containers_objects_and_accounts_are_counted(store: ListingStore) -> None:
    server = Server(d0=store)
    await put(store, "AUTH_a", "one", 3, objects=2)
    await put(store, "AUTH_a", "two", 3, objects=1)
    await put(store, "AUTH_a", "gold", 0, objects=9)
    for name in "bcde":
        await put(store, f"AUTH_{name}", "one", 3)
    await put(store, ".expiring", "1800000000", 3, objects=4)
    assert server.tally.report() is None
    server.deprecate()
    assert await server.used() == {
        "containers": 6,
        "objects": 3,
        "accounts": 5,
        "largest": ["AUTH_a", "AUTH_b", "AUTH_c"],
        "copies": 6,
        "emptySince": None,
    }
    server.policies = [GOLD, SILVER]
    await server.tally.walk()
    assert (server.tally.report() or {})["used"] == {}


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("silver_is_left", [True, False])
async def test_a_container_that_moves_counts_for_both_policies_until_it_is_settled(
    store: ListingStore, phase: Phase, silver_is_left: bool
) -> None:
    server = Server(d0=store)
    await put(store, "AUTH_a", "one", 3 if silver_is_left else 0, objects=2)
    for number, one in enumerate(Phase, 30):
        move = PolicyMove(*((3, 0) if silver_is_left else (0, 3)), one, Timestamp(number), Timestamp(10))
        await store.post_container(1, "AUTH_a", "one", Timestamp(number), {ITEM: move.text()})
        if one is phase:
            break
    server.deprecate()
    server.clock.now_s += GRACE_S
    found = await server.used()
    is_used = not silver_is_left or phase is not Phase.SETTLED
    assert (found["containers"], found["objects"], found["copies"]) == ((1, 2, 1) if is_used else (0, 0, 0))
    assert (found["emptySince"] is None) == is_used


async def test_what_is_no_first_replica_is_a_copy_and_not_counted_twice(store: ListingStore) -> None:
    server = Server(d0=store)
    server.tally = PolicyTally(server.stores, lambda: server.policies, lambda *_: False, 60.0, GRACE_S, server.clock)
    await put(store, "AUTH_a", "one", 3, objects=2)
    server.deprecate()
    found = await server.used()
    assert (found["containers"], found["objects"], found["accounts"], found["copies"]) == (0, 0, 0, 1)


async def test_a_deleted_container_counts_until_it_is_forgotten(store: ListingStore) -> None:
    server = Server(d0=store)
    await put(store, "AUTH_a", "one", 3)
    await store.delete_container(1, "AUTH_a", "one", Timestamp(30))
    server.deprecate()
    server.clock.now_s += GRACE_S
    found = await server.used()
    assert (found["containers"], found["copies"], found["emptySince"]) == (0, 1, None)
    id = store.id_of(1, DatabaseName("AUTH_a", "one"))
    await store.write(id, lambda database: database.mark_reported(database.account_row(Timestamp(31))))
    await store.reclaim(id, Timestamp(40))
    found = await server.used()
    assert found["copies"] == 0
    assert found["emptySince"] == server.clock.now_s


async def test_nothing_is_empty_before_the_policy_is_refused_and_then_from_the_first_empty_walk_on(
    store: ListingStore,
) -> None:
    server = Server(d0=store)
    server.deprecate()
    assert (await server.used())["emptySince"] is None
    server.clock.now_s += GRACE_S
    since = (await server.used())["emptySince"]
    assert since == server.clock.now_s
    server.clock.now_s += 60.0
    assert (await server.used())["emptySince"] == since
    # One that another server gave to this one.
    store.refuse_policies(frozenset())
    await put(store, "AUTH_a", "one", 3)
    assert (await server.used())["emptySince"] is None


async def test_a_database_that_cannot_be_read_may_be_one_of_the_policy(tmp_path: Path) -> None:
    before = ListingStore(tmp_path / "d0", HASH_PATH)
    await put(before, "AUTH_a", "gold", 0)
    await before.close()
    (file,) = (tmp_path / "d0" / "containers").rglob("*.db")
    file.write_bytes(b"no database")
    again = ListingStore(tmp_path / "d0", HASH_PATH)
    server = Server(d0=again)
    server.deprecate()
    server.clock.now_s += GRACE_S
    assert (await server.used())["emptySince"] is None
    # It is in quarantine now.
    assert (await server.used())["emptySince"] is not None
    await again.close()


async def test_a_device_that_cannot_be_listed_may_hold_some(tmp_path: Path, store: ListingStore) -> None:
    gone = ListingStore(tmp_path / "d1", HASH_PATH)
    await gone.close()
    server = Server(d0=store, d1=gone)
    server.deprecate()
    server.clock.now_s += GRACE_S
    assert (await server.used())["emptySince"] is None


async def test_new_containers_are_refused_and_those_that_are_there_go_on(store: ListingStore) -> None:
    server = Server(d0=store)
    await put(store, "AUTH_a", "one", 3)
    server.deprecate()
    await put(store, "AUTH_a", "late", 3)
    server.clock.now_s += GRACE_S
    server.tally.look()
    for policy, default in ((3, 0), (None, 3)):
        with pytest.raises(PolicyConflict, match="storage policy 3 is deprecated"):
            await store.put_container(1, "AUTH_a", "new", Timestamp(50), {}, policy, default)
    assert not await store.put_container(1, "AUTH_a", "one", Timestamp(50), {"X-Container-Meta-A": "b"}, None, 0)
    assert await store.put_container(1, ".expiring", "1800000000", Timestamp(50), {}, None, 3)
    server.policies = [GOLD, SILVER]
    server.tally.look()
    assert await store.put_container(1, "AUTH_a", "new", Timestamp(60), {}, 3, 0)


async def test_databases_of_shards_are_no_containers(store: ListingStore) -> None:
    server = Server(d0=store)
    server.policies = [GOLD.model_copy(update={"deprecated": True, "default": False}), SILVER]
    name = shard_name(DatabaseName("AUTH_a", "one"), "m")
    await store.write(store.id_of(1, name), lambda database: shards.found(database, True), create=name)
    await server.tally.walk()
    assert (server.tally.report() or {})["used"] == {
        "0": {"containers": 0, "objects": 0, "accounts": 0, "largest": [], "copies": 0, "emptySince": None}
    }


def test_the_longest_report_fits() -> None:
    """Of each policy three names; all policies but one may be deprecated, if their accounts are not called all this."""
    one = {
        "containers": 2**53,
        "objects": 2**53,
        "accounts": 2**53,
        "largest": ["AUTH_0123456789abcdef0123456789abcdef"] * policy_tally.NAMED,
        "copies": 2**53,
        "emptySince": 1_800_000_000.123456,
    }
    assert len(json.dumps({str(index): one for index in range(180)})) < MAX_BYTES
