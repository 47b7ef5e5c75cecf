"""Objects with erasure coding are repaired: read with as many devices away as may be after what had been missing.

Fault model: devices are away during writes and deletions, replaced by empty ones, or go by another ring; proxies end
between the steps of a write. Each test does rounds of some devices' replicators over real servers.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path as Directory

import pytest

from swiftlet.api.tests.coded import CODED, CODING, STRIPE, CodedServers, coded_proxy
from swiftlet.api.tests.coded_repairs import COMMIT, RECOVER_AFTER_S, SETTLE, Repairs, ending_before
from swiftlet.api.tests.proxy import Proxy
from swiftlet.api.tests.test_erasure_coding import body_of
from swiftlet.boundaries.coded import PLACES, CodedPlaces
from swiftlet.model import ObjectKey
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT, HASH_PATH, at, footer_of, record_of
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.sync.coded.layout import CodedRing, HoldersAround

SIZES = (0, 1, 3 * STRIPE + 1700, 300_000)
Repaired = tuple[Proxy, CodedServers, Repairs]


@pytest.fixture
async def repaired(tmp_path: Directory) -> AsyncIterator[Repaired]:
    async with coded_proxy(tmp_path) as (proxy, servers):
        yield proxy, servers, Repairs(servers, lambda: proxy.clock.now)


async def put(proxy: Proxy, sizes: Sequence[int] = SIZES) -> None:
    """Store an object of each size."""
    for size in sizes:
        stored = await proxy.call("PUT", f"c/o{size}", data=body_of(size))
        assert stored.status == 201, stored.body


async def assert_read(proxy: Proxy, servers: CodedServers, needed: int, sizes: Sequence[int] = SIZES) -> None:
    """Assert that all are read with any two other devices away, which takes the fragment of the one that is needed."""
    others = [number for number in range(len(servers.stores)) if number != needed]
    for away in itertools.combinations(others, CODING.parity):
        with servers.away(*away):
            for size in sizes:
                got = await proxy.call("GET", f"c/o{size}")
                assert (got.status, got.body) == (200, body_of(size)), (away, size, got.body[:200])


def places_of(servers: CodedServers, name: str) -> CodedPlaces:
    """Return the places of an object."""
    digest = HASH_PATH.of(Path(ACCOUNT, "c", name))
    partition = servers.ring.partition_of(digest)
    key = ObjectKey(CODED, partition, digest)
    return CodedPlaces.in_ring(key, CODING, servers.ring)


async def test_a_device_that_was_away_during_writes_has_its_fragments_after_a_round_of_its_own(
    repaired: Repaired,
) -> None:
    proxy, servers, repairs = repaired
    with servers.away(2):
        await put(proxy)
        away = await repairs.round_of(0)
        assert (away.rebuilt, away.failed) == (0, 0)
    with servers.away(0, 1):
        assert (await proxy.call("GET", f"c/o{SIZES[-1]}")).status == 503
    report = await repairs.round_of(2)
    assert (report.rebuilt, report.failed, report.unchecked) == (len(SIZES), 0, 0)
    assert report.rebuilt_bytes >= SIZES[-1] // CODING.data
    await assert_read(proxy, servers, needed=2)
    await repairs.round_of()
    assert (await repairs.round_of()).clean


async def test_the_place_before_brings_what_the_next_one_lacks(repaired: Repaired) -> None:
    proxy, servers, repairs = repaired
    with servers.away(3):
        await put(proxy, SIZES[:2])
    for size in SIZES[:2]:
        at_places = places_of(servers, f"o{size}").at
        place = next(number for number, device in enumerate(at_places) if device.id == 3)
        await repairs.round_of(at_places[place - 1].id)
    await assert_read(proxy, servers, needed=3, sizes=SIZES[:2])


async def test_metadata_that_a_device_has_missed_are_brought(repaired: Repaired) -> None:
    proxy, servers, repairs = repaired
    await put(proxy, SIZES[:2])
    proxy.clock.now += 1
    with servers.away(2):
        for size in SIZES[:2]:
            assert (await proxy.call("POST", f"c/o{size}", {"X-Object-Meta-A": str(size)})).status == 202
    report = await repairs.round_of(2)
    assert (report.rebuilt, report.failed) == (0, 0)
    assert metas(servers, 2) == [1, 1]
    # One that is rebuilt has the newest ones, too.
    await servers.replace(4)
    report = await repairs.round_of(4)
    assert (report.rebuilt, report.failed) == (2, 0)
    assert metas(servers, 4) == [1, 1]
    await repairs.round_of()
    assert (await repairs.round_of()).clean


def metas(servers: CodedServers, number: int) -> list[int]:
    """Return how many metadata each object of a device has by POST."""
    found = []
    for size in SIZES[:2]:
        places = places_of(servers, f"o{size}")
        place = next(place for place, device in enumerate(places.at) if device.id == number)
        found.append(len(servers.stores[number].stat(places.key_at(place)).metadata))
    return found


async def test_an_empty_device_gets_all_fragments_of_the_one_that_it_replaces(repaired: Repaired) -> None:
    proxy, servers, repairs = repaired
    await put(proxy)
    # A PUT does not wait for the slowest places, which may lack a fragment then.
    while not (await repairs.round_of()).clean:
        pass
    await servers.replace(1)
    report = await repairs.round_of(1)
    assert (report.rebuilt, report.failed) == (len(SIZES), 0)
    await assert_read(proxy, servers, needed=1)


async def test_a_fragment_that_a_reader_has_found_damaged_is_made_anew(repaired: Repaired, tmp_path: Directory) -> None:
    proxy, servers, repairs = repaired
    await put(proxy, [9000])
    home = places_of(servers, "o9000").at[0].id
    # Without parity in it, the first fragment has the first bytes of the object as they are.
    flip(tmp_path / f"coded-{home}", body_of(9000)[: CODING.cell_bytes])
    assert (await proxy.call("GET", "c/o9000")).body == body_of(9000)
    report = await repairs.round_of(home)
    assert (report.rebuilt, report.failed) == (1, 0)
    await assert_read(proxy, servers, needed=home, sizes=[9000])


def flip(device: Directory, found: bytes) -> None:
    """Change a byte of what is found on a device."""
    for file in device.rglob("*"):
        if file.is_file() and (place := file.read_bytes().find(found)) >= 0:
            with file.open("r+b") as opened:
                opened.seek(place + 7)
                opened.write(bytes([found[7] ^ 1]))
            return
    raise AssertionError("it is not on the device")


async def test_with_too_few_fragments_nothing_is_removed_and_the_reason_counted(repaired: Repaired) -> None:
    proxy, servers, repairs = repaired
    # Of an object without bytes there is nothing to be read.
    with servers.away(5):
        await put(proxy, [300_000])
    for number in (1, 3):
        await servers.replace(number)
    report = await repairs.round_of()
    assert report.too_few == report.failed > 0
    assert report.rebuilt == 0
    assert [number for number, store in enumerate(servers.stores) if store.partitions(CODED)] == [0, 2, 4]


async def test_a_deletion_reaches_a_device_that_was_away_and_the_object_does_not_come_back(repaired: Repaired) -> None:
    proxy, servers, repairs = repaired
    await put(proxy)
    with servers.away(4):
        proxy.clock.now += 1
        for size in SIZES:
            assert (await proxy.call("DELETE", f"c/o{size}")).status == 204
    report = await repairs.round_of(4)
    assert (report.told, report.rebuilt, report.failed) == (len(SIZES), 0, 0)
    await repairs.round_of()
    for away in ((), (0, 1), (2, 3), (1, 5)):
        with servers.away(*away):
            for size in SIZES:
                assert (await proxy.call("GET", f"c/o{size}")).status == 404
    assert (await repairs.round_of()).clean


async def test_devices_are_asked_no_more_about_a_deletion_or_a_fragment_than_it_needs(
    repaired: Repaired, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, servers, repairs = repaired
    await put(proxy)
    while not (await repairs.round_of()).clean:
        pass
    asked: Counter[str] = Counter()

    def count(name: str) -> None:
        ask: Callable[..., Awaitable[object]] = getattr(repairs.repair, name)

        async def counted(*about: object) -> object:
            asked[name] += 1
            return await ask(*about)

        monkeypatch.setattr(repairs.repair, name, counted)

    for name in ("show", "learn", "posted"):
        count(name)
    await servers.replace(1)
    assert (await repairs.round_of(1)).rebuilt == len(SIZES)
    # It is told that it lacks the fragment, and once it has it, that older versions are dead.
    assert asked == {"show": len(SIZES), "learn": 2 * len(SIZES), "posted": len(SIZES)}
    with servers.away(1):
        proxy.clock.now += 1
        for size in SIZES:
            assert (await proxy.call("DELETE", f"c/o{size}")).status == 204
    asked.clear()
    assert (await repairs.round_of(1)).told == len(SIZES)
    assert asked == {"show": len(SIZES), "learn": len(SIZES)}


async def test_an_old_deletion_is_not_told_to_those_who_may_have_forgotten_it(repaired: Repaired) -> None:
    proxy, servers, _ = repaired
    repairs = Repairs(servers, lambda: proxy.clock.now, reclaim_age_s=3600.0)
    await put(proxy, SIZES[:1])
    proxy.clock.now += 1
    assert (await proxy.call("DELETE", f"c/o{SIZES[0]}")).status == 204
    await servers.replace(0)
    proxy.clock.now += 10_000
    report = await repairs.round_of()
    assert (report.told, report.failed) == (0, 0)


async def write_and_end(proxy: Proxy, servers: CodedServers, name: str, body: bytes, question: int) -> bool:
    """Write an object by a proxy that ends before it first asks this; return whether it has acknowledged the write."""
    async with ending_before(servers, question) as coded:
        record = record_of(Path(ACCOUNT, "c", name), at(proxy.clock.now))
        stream = await coded.open_coded_put(places_of(servers, name), record, len(body), [])
        await stream.write(body)
        end = await stream.commit(footer_of(body).etag)
        return end.verdict == "acknowledged"


@pytest.mark.parametrize(("question", "is_stored"), [(COMMIT, False), (SETTLE, True)])
async def test_devices_decide_about_a_write_whose_proxy_ended_between_its_steps(
    repaired: Repaired, question: int, is_stored: bool
) -> None:
    proxy, servers, repairs = repaired
    await put(proxy, [5000])
    before, body = body_of(5000), body_of(9000)
    proxy.clock.now += 1
    assert await write_and_end(proxy, servers, "o5000", body, question) == is_stored
    assert await repairs.unsettled()
    waiting = await repairs.round_of()
    assert waiting.undecided > 0
    assert waiting.recovered == 0
    repairs.passed_s += RECOVER_AFTER_S
    decided = await repairs.round_of()
    assert decided.recovered > 0
    await repairs.round_of()
    assert await repairs.unsettled() == []
    for away in ((), (0, 1), (2, 3), (4, 5)):
        with servers.away(*away):
            assert (await proxy.call("GET", "c/o5000")).body == (body if is_stored else before)
    assert (await repairs.round_of()).clean


async def test_what_spares_keep_goes_to_its_place_and_is_dropped_there(tmp_path: Directory) -> None:
    async with coded_proxy(tmp_path, devices=CODING.fragments + 2) as (proxy, servers):
        repairs = Repairs(servers, lambda: proxy.clock.now)
        places = places_of(servers, "o9000")
        home = places.at[1]
        with servers.away(home.id):
            await put(proxy, [9000])
        store_partition = PLACES * places.key.partition + 1

        def keeping() -> list[int]:
            return [
                number for number, store in enumerate(servers.stores) if store.suffix_hashes(CODED, store_partition)
            ]

        async with asyncio.timeout(20):
            # Whoever stands in may answer after the write is acknowledged.
            while not keeping():  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.01)
        spares = keeping()
        assert len(spares) == 1
        assert spares != [home.id]
        with servers.away(home.id):
            away = await repairs.round_of(*spares)
            assert away.handed_back == 0
        first = await repairs.round_of(*spares)
        assert (first.rebuilt, first.failed) == (1, 0)
        async with asyncio.timeout(20):
            # With its row pending, a fragment stays.
            while servers.pending():
                await servers.deliver_pending(proxy.cluster.rows)
        second = await repairs.round_of(*spares)
        assert (first.handed_back + second.handed_back, second.failed) == (1, 0)
        assert not servers.stores[spares[0]].suffix_hashes(CODED, store_partition)
        assert servers.stores[home.id].suffix_hashes(CODED, store_partition)
        with servers.away(places.at[0].id, places.at[5].id):
            assert (await proxy.call("GET", "c/o9000")).body == body_of(9000)


async def test_devices_that_go_by_another_ring_are_not_counted_on(repaired: Repaired) -> None:
    proxy, servers, repairs = repaired
    with servers.away(2):
        await put(proxy, SIZES[:1])
    ring = servers.ring
    newer = Ring(ring.version + 1, ring.part_power, ring.replica_count, ring.devices, ring.rows)
    repairs.rings = dict.fromkeys((0, 1, 3, 4, 5), newer)
    report = await repairs.round_of(2)
    with_copies = len(HoldersAround(CodedRing(CODED, ring, CODING), ring.device(2)).own)
    assert (report.rebuilt, report.unchecked) == (0, ring.partition_count + with_copies)
    repairs.rings = {2: newer}
    assert (await repairs.round_of(2)).unchecked == 1
    repairs.rings = {}
    assert (await repairs.round_of(2)).rebuilt == 1


@pytest.mark.parametrize(("seed", "devices"), [(0, 6), (1, 8), (2, 8)])
async def test_whatever_happened_all_is_whole_again_after_some_rounds(
    tmp_path: Directory, seed: int, devices: int
) -> None:
    async with coded_proxy(tmp_path, devices=devices) as (proxy, servers):
        await live(proxy, servers, random.Random(seed))


async def live(proxy: Proxy, servers: CodedServers, chance: random.Random) -> None:
    """Write, delete and repair at random, with a device away or lost now and then; what is acknowledged is read."""
    repairs = Repairs(servers, lambda: proxy.clock.now)
    possible: dict[str, list[bytes | None]] = {f"o{number}": [None] for number in range(4)}
    away: set[int] = set()
    for step in range(40):
        proxy.clock.now += 1
        name, what = chance.choice(sorted(possible)), chance.choice("ppppddeabrrl")
        with servers.away(*away):
            if what == "p":
                body = body_of(1000 * step + chance.choice((0, 1, 5000)))
                status = (await proxy.call("PUT", f"c/{name}", data=body)).status
                possible[name] = [body] if status == 201 else [*possible[name], body]
            elif what == "d":
                status = (await proxy.call("DELETE", f"c/{name}")).status
                possible[name] = [None] if status in {204, 404} else [*possible[name], None]
            elif what == "r":
                await repairs.round_of(*chance.sample(range(len(servers.stores)), 2))
        if what == "e":
            body = body_of(1000 * step)
            acknowledged = await write_and_end(proxy, servers, name, body, chance.choice((COMMIT, SETTLE)))
            possible[name] = [body] if acknowledged else [*possible[name], body]
        elif what == "a" and not away:
            away.add(chance.randrange(len(servers.stores)))
        elif what == "b":
            away.clear()
        elif what == "l" and not away and (await whole(repairs)):
            await servers.replace(chance.randrange(len(servers.stores)))
            assert await whole(repairs)
    assert await whole(repairs)
    for gone in itertools.combinations(range(len(servers.stores)), CODING.parity):
        with servers.away(*gone):
            for name, bodies in possible.items():
                got = await proxy.call("GET", f"c/{name}")
                assert (got.body if got.status == 200 else None) in bodies, (gone, name, got.status)
                assert got.status in {200, 404}, (gone, name, got.body)


async def whole(repairs: Repairs) -> bool:
    """Do rounds of all replicators until one of them finds nothing, at most five; return whether one did."""
    repairs.passed_s += RECOVER_AFTER_S
    for _ in range(5):
        report = await repairs.round_of()
        repairs.passed_s += RECOVER_AFTER_S
        if report.clean and not await repairs.unsettled():
            return True
    return False


async def test_a_round_in_which_nothing_differs_costs_as_much_with_many_objects_as_with_few(
    repaired: Repaired, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with copies: each other device is asked once about all fragments, and once about all copies of small objects,
    and answers in a few bytes that they are equal.
    """
    proxy, servers, repairs = repaired
    asked: list[tuple[int, int, int]] = []
    ask = repairs.ask

    async def counted(device: Device, message: bytes) -> bytes:
        answer = await ask(device, message)
        asked.append((device.id, len(message), len(answer)))
        return answer

    monkeypatch.setattr(repairs, "ask", counted)
    costs: list[list[tuple[int, int, int]]] = []
    for number in (3, 30):
        await put(proxy, range(1000, 1000 + number))
        proxy.clock.now += 100
        # A PUT does not wait for the slowest places, which may lack a fragment then; the first round without anything
        # to do remembers that.
        while not (await repairs.round_of()).clean:
            pass
        await repairs.round_of(0)
        asked.clear()
        assert (await repairs.round_of(0)).clean
        costs.append(sorted(one for one in asked if one[0] != 0))
    few, many = costs
    assert few == many
    assert {device for device, _, _ in few} == set(range(1, len(servers.stores)))
    assert len(few) <= 2 * (len(servers.stores) - 1)
    shared = servers.ring.partition_count
    assert all(sent <= 40 + 2 * shared and received <= 40 for _, sent, received in few), few
