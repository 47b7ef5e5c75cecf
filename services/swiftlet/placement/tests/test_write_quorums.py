"""Writes that stay in their region, and writes that every region has to confirm: what they promise, under faults."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path as Directory

import pytest
from swiftlet_native import Doubts

from swiftlet.errors import NotFound, Unavailable
from swiftlet.model import Kind
from swiftlet.names import Path
from swiftlet.placement.quorums import Quorum
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, PATH, at, footer_of, record_of
from swiftlet.placement.tests.sites import Site, Sites, sites
from swiftlet.testing.store.memory import MemoryStore

PATHS = [Path(ACCOUNT, CONTAINER, f"o{number}") for number in range(6)]
ELSEWHERE = ("north", "west")


@pytest.fixture
async def local(tmp_path: Directory) -> AsyncIterator[Sites]:
    """Three regions of four devices; each has one primary of every object."""
    async with sites(tmp_path, "local") as made:
        yield made


@pytest.fixture
async def each(tmp_path: Directory) -> AsyncIterator[Sites]:
    """The same; a device that fails twice is asked last."""
    async with sites(tmp_path, "each-region", suppress_after=2) as made:
        yield made


@pytest.fixture
def here(local: Sites) -> Site:
    """Where writes are made."""
    return local["east"]


def calls_of(site: Site) -> int:
    """How often any device has been called."""
    return sum(site.transport.link(device).calls for device in site.cluster.devices)


# In the writer's region.


@pytest.mark.parametrize("kind", ["put", "upload"])
async def test_all_copies_of_a_local_write_are_in_its_region(local: Sites, here: Site, kind: str) -> None:
    for number, path in enumerate(PATHS):
        body = b"data" * number
        await (here.put(2, body, path) if kind == "put" else here.upload(2, body, path))
        assert local.holders(path) == {"east": 3}
        assert await here.read(path) == body
        assert (await here.head(path)).size == len(body)
        assert (await here.post(3, path)).existed
        assert (await here.delete(4, path)).existed
    assert here.far_calls() == 0


async def test_what_is_lacking_elsewhere_is_brought_there_and_nothing_stays_behind(local: Sites, here: Site) -> None:
    for path in PATHS:
        await here.put(2, b"data", path)
    await local.rounds()
    for path in PATHS:
        assert local.holders(path) == dict.fromkeys(("east", "north", "west"), 1)


async def test_other_regions_find_what_has_not_been_brought_there(local: Sites, here: Site) -> None:
    await here.put(2)
    for region in ELSEWHERE:
        assert await local[region].read() == b"data"
        assert (await local[region].head()).timestamp == at(2)
    await local["north"].post(3)
    assert (await here.head()).metadata == {"X-Object-Meta-N": "3"}
    assert (await local["west"].delete(4)).existed
    await local.rounds()
    for site in local:
        with pytest.raises(NotFound):
            await site.head()
        assert not (await site.delete(5)).existed


async def test_a_writer_that_does_not_know_its_region_writes_to_most_and_reads_everything(local: Sites) -> None:
    await local["west"].put(2)
    assert await local.nowhere.read() == b"data"
    await local.nowhere.put(3, b"newer")
    assert local.holders() == {"east": 1, "north": 1, "west": 3}
    assert (await local.nowhere.delete(4)).existed


async def test_a_primary_that_was_away_does_not_hide_what_was_written_beside_it(local: Sites, here: Site) -> None:
    await here.put(2, b"old")
    await local.rounds()
    away = local.primary("east")
    with local.cluster.down(away):
        here.cut(away)
        await here.put(3, b"newer")
        assert await here.read() == b"newer"
        here.cut(away, False)
    assert await here.read() == b"newer"
    assert (await here.head()).timestamp == at(3)
    with local.isolated("east"):
        assert await here.read() == b"newer"


async def test_the_loss_of_one_device_loses_nothing_that_was_acknowledged(local: Sites, here: Site) -> None:
    for path in PATHS:
        await here.put(2, b"data", path)
    for lost in here.near():
        for device in (lost, *here.far()):
            here.cut(device)
        for path in PATHS:
            assert await here.read(path) == b"data"
        for device in (lost, *here.far()):
            here.cut(device, False)


async def test_a_region_with_too_few_devices_left_writes_elsewhere_as_well(local: Sites, here: Site) -> None:
    kept = local.primary("east")
    for device in here.near():
        here.cut(device, device is not kept)
    await here.put(2)
    assert local.holders() == {"east": 1, "north": 1, "west": 1}
    here.cut(kept)
    assert await here.read() == b"data"
    for device in here.far():
        here.cut(device)
    here.cut(kept, False)
    with pytest.raises(Unavailable, match="2 replicas must answer, 1 did"):
        await here.put(3)


@pytest.mark.parametrize(("regions", "replicas"), [(("east", "west"), 3), (("east", "west"), 4), (("east",), 3)])
async def test_local_writes_with_other_numbers_of_regions(
    tmp_path: Directory, regions: tuple[str, ...], replicas: int
) -> None:
    async with sites(tmp_path, "local", devices=12, replicas=replicas, regions=regions) as made:
        for number, path in enumerate(PATHS):
            site = made[regions[number % len(regions)]]
            await site.put(2, b"data", path)
            assert made.holders(path) == {site.place.region: replicas}
            for reader in made:
                assert await reader.read(path) == b"data"
            assert site.far_calls() == 0 or len(regions) > 1
        await made.rounds()
        for path in PATHS:
            assert sum(made.holders(path).values()) == replicas
            assert set(made.holders(path)) == set(regions)


async def test_a_region_without_a_primary_writes_reads_and_hands_back(tmp_path: Directory) -> None:
    async with sites(tmp_path, "local", devices=12, replicas=1) as made:
        for path in PATHS:
            region = made.cluster.primaries(path)[0].region
            site = next(site for site in made if site.place.region != region)
            await site.put(2, b"data", path)
            assert made.holders(path) == {site.place.region: 1}
            for reader in made:
                assert await reader.read(path) == b"data"
            await made.rounds()
            assert made.holders(path) == {region: 1}
            for reader in made:
                assert await reader.read(path) == b"data"
                with pytest.raises(NotFound):
                    await reader.head(Path(ACCOUNT, CONTAINER, "never"))


# A region that is cut off.


async def test_a_region_that_is_cut_off_goes_on_and_is_equal_afterwards(local: Sites) -> None:
    await local["north"].put(2, b"before")
    await local.rounds()
    with local.isolated("east"):
        east, west = local["east"], local["west"]
        assert await east.read() == b"before"
        for number, path in enumerate(PATHS):
            await east.put(10 + number, b"east", path)
            await west.put(9 if number % 2 else 20, b"west", path)
            assert await east.read(path) == b"east"
            assert await west.read(path) == b"west"
        await east.put(30, b"after")
        assert (await east.delete(31, PATHS[0])).existed
        with pytest.raises(NotFound):
            await east.head(PATHS[0])
        await east.replicate()
        assert local.holders(PATHS[1])["east"] == 3, "nothing is dropped that others lack"
    await local.rounds()
    for number, path in enumerate(PATHS[1:], start=1):
        entries = {local.cluster.entry(device, local.cluster.key(path)) for device in local.cluster.primaries(path)}
        assert len(entries) == 1
        for site in local:
            assert await site.read(path) == (b"east" if number % 2 else b"west")
    for site in local:
        assert await site.read() == b"after"
        with pytest.raises(NotFound):
            await site.head(PATHS[0])


async def test_what_its_own_region_should_have_is_not_there_when_it_is_cut_off(local: Sites) -> None:
    await local["west"].put(2)
    with local.isolated("east"):
        east = local["east"]
        with pytest.raises(NotFound, match="does not exist in region east, and other regions can't be asked"):
            await east.read()
        with pytest.raises(NotFound, match="other regions can't be asked"):
            await east.post(3)
        assert not (await east.delete(4)).existed
        with pytest.raises(Unavailable, match="0 of 4 devices answered, too few to know the newest version"):
            await east.read(newest=True)
        with pytest.raises(NotFound):
            await local["north"].head(PATHS[0])
        assert await local["north"].read() == b"data"
        primary = local.primary("east", PATHS[0])
        east.cut(primary)
        with pytest.raises(Unavailable):
            await east.read(PATHS[0])
        east.cut(primary, False)
    await local.rounds()
    for site in local:
        with pytest.raises(NotFound):
            await site.head()


async def test_what_is_read_first_is_a_primary_of_the_region_or_none(tmp_path: Directory) -> None:
    async with sites(tmp_path, "local", suppress_after=2) as made:
        here, near = made["east"], made.primary("east")
        key = here.objects.key(PATH, 0)
        assert here.objects.first_reader(key) == near
        for site in (here, made.nowhere):
            site.health.failed(near)
            site.health.failed(near)
        # Others may have something older, and nobody tells them what they missed.
        assert here.objects.first_reader(key) is None
        assert made.nowhere.objects.first_reader(key) is not None


async def test_a_device_that_may_have_missed_something_proves_no_absence(local: Sites) -> None:
    await local["west"].put(2)
    await local.rounds()
    replaced = local.primary("east")
    with local.isolated("east"):
        local.cluster.stores[replaced.address] = MemoryStore()
        local.cluster.transport.doubts.setdefault(replaced.address, Doubts()).doubt_all()
        with pytest.raises(Unavailable):
            await local["east"].read()
    assert await local["east"].read() == b"data"


async def test_a_post_of_what_the_region_has_too_few_copies_of_goes_to_all(local: Sites, here: Site) -> None:
    await here.put(2)
    await local.rounds()
    assert (await here.post(3)).existed
    for device in local.cluster.primaries():
        assert getattr(local.cluster.info(device), "meta_timestamp", None) == at(3)
    with local.isolated("east"), pytest.raises(Unavailable, match="2 replicas must answer, 1 did"):
        await here.post(4)


async def test_the_newest_version_is_unknown_while_a_region_may_have_a_newer_one(local: Sites) -> None:
    await local["north"].put(2)
    await local.rounds()
    await local["west"].put(3, b"newest")
    assert await local["east"].read() == b"data"
    assert await local["east"].read(newest=True) == b"newest"
    with local.isolated("west"), pytest.raises(Unavailable, match="in region west 0 of 4 devices answered"):
        await local["east"].read(newest=True)


async def test_rows_of_local_writes_wait_for_their_region_alone(local: Sites, here: Site) -> None:
    near, *_ = (device for device in local.cluster.container_devices() if device.region == "east")
    here.databases.slow.update(device.name for device in here.far())
    await here.put(2)
    assert await local.cluster.listed(near) == ["o"]
    here.databases.go_on.set()
    await here.settle()
    for device in local.cluster.container_devices():
        assert await local.cluster.listed(device) == ["o"]
    with local.isolated("east"):
        await here.put(3, b"data", PATHS[0])
        assert await local.cluster.listed(near) == ["o", "o0"]
        await here.settle()
    assert local.cluster.hosts_with_pending() != set()
    await local.cluster.deliver_pending(3600)
    for device in local.cluster.container_devices():
        assert await local.cluster.listed(device) == ["o", "o0"]


# In each region.


async def test_each_region_has_what_was_acknowledged(each: Sites) -> None:
    for path in PATHS:
        await each["east"].put(2, b"data", path)
        assert each.holders(path) == dict.fromkeys(("east", "north", "west"), 1)
        for region in ELSEWHERE:
            before = each[region].far_calls()
            assert await each[region].read(path) == b"data"
            assert each[region].far_calls() == before


async def test_rows_wait_for_the_writers_region_alone_and_reach_the_others(each: Sites) -> None:
    site = each["east"]
    near, *_ = (device for device in each.cluster.container_devices() if device.region == "east")
    site.databases.slow.update(device.name for device in site.far())
    await site.put(2)
    assert await each.cluster.listed(near) == ["o"]
    site.databases.go_on.set()
    await site.settle()
    for device in each.cluster.container_devices():
        assert await each.cluster.listed(device) == ["o"]


async def test_a_primary_is_replaced_by_a_device_of_its_region_alone(each: Sites) -> None:
    site = each["east"]
    site.cut(each.primary("west"))
    await site.put(2)
    assert each.holders() == dict.fromkeys(("east", "north", "west"), 1)
    assert each.cluster.info(each.primary("west")) is None
    await site.upload(3, b"x" * 3000)
    assert each.holders() == dict.fromkeys(("east", "north", "west"), 1)


@pytest.mark.parametrize("kind", ["put", "upload"])
async def test_without_a_region_nothing_is_acknowledged_and_the_reason_names_it(each: Sites, kind: str) -> None:
    site = each["east"]

    async def write(second: float) -> None:
        await (site.put(second) if kind == "put" else site.upload(second, b"data"))

    with each.isolated("west"):
        with pytest.raises(Unavailable, match=r"in region west 1 replica must answer, 0 did \(.*is unreachable"):
            await write(2)
        with pytest.raises(Unavailable):
            await write(3)
        before = calls_of(site)
        with pytest.raises(Unavailable, match="too few devices in region west have answered lately"):
            await write(4)
        assert calls_of(site) == before, "nobody is asked in vain"
    for device in site.far():
        site.health.succeeded(device)
    await write(5)
    assert each.holders() == dict.fromkeys(("east", "north", "west"), 1)


async def test_a_region_that_is_lost_in_the_middle_of_an_upload(each: Sites) -> None:
    site = each["east"]
    upload = await site.objects.upload(PATH, 0, record_of(PATH, at(2)), 4000)
    await upload.write(b"x" * 1000)
    for device in each["west"].near():
        site.transport.link(device).lose_after_bytes = 500
    with pytest.raises(Unavailable, match="in region west 1 replica must answer, 0 did"):
        await upload.write(b"x" * 1000)
    assert each.holders() == {}
    for device in each["west"].near():
        site.transport.link(device).lose_after_bytes = None
    upload = await site.objects.upload(PATH, 0, record_of(PATH, at(3)), 1000)
    await upload.write(b"x" * 1000)
    for device in each["west"].near():
        each.cluster.store(device).faults.broken = True
    with pytest.raises(Unavailable, match="in region west 1 replica must answer, 0 did"):
        await upload.commit(footer_of(b"x" * 1000))
    for device in each["west"].near():
        each.cluster.store(device).faults.broken = False
    await each.rounds()
    entries = {each.cluster.entry(device) for device in each.cluster.primaries()}
    assert len(entries) == 1, "what was refused is everywhere in the end, or nowhere"


async def test_deletions_and_posts_need_each_region_too(each: Sites) -> None:
    site = each["north"]
    await site.put(2)
    await site.post(3)
    with each.isolated("east"):
        for write in (site.post(4), site.delete(5)):
            with pytest.raises(Unavailable, match="region east"):
                await write
    for device in site.far():
        site.health.succeeded(device)
    assert (await site.delete(6)).existed
    for device in each.cluster.primaries():
        entry = each.cluster.entry(device)
        assert entry is not None
        assert entry.kind is Kind.TOMBSTONE
    with pytest.raises(NotFound):
        await site.post(7)


async def test_most_of_each_regions_replicas_are_enough(tmp_path: Directory) -> None:
    async with sites(tmp_path, "each-region", devices=12, replicas=5, regions=("east", "west")) as made:
        site, primaries = made["east"], made.cluster.primaries()
        more = max(("east", "west"), key=lambda region: sum(device.region == region for device in primaries))
        assert Quorum.in_each_region(primaries).met([d for d in primaries if d is not made.primary(more)])
        spares = [device for device in site.cluster.devices if device not in primaries]
        for device in (made.primary(more), *spares):
            site.cut(device)
        await site.put(2)
        assert sum(made.holders().values()) == 4
        site.cut(next(d for d in primaries if d.region == more and d is not made.primary(more)))
        with pytest.raises(Unavailable, match=f"in region {more} 2 replicas must answer, 1 did"):
            await site.put(3)
