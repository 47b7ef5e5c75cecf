"""Bytes of fragments that change on a device, in volumes and in files of their own: the auditor or a reader finds them,
they are never served, and the next round makes them anew; with more of them than there is parity reads are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Sequence
from pathlib import Path as Directory

import pytest

from swiftlet.api.tests.coded import CODED, CODING, STRIPE, CodedServers, coded_proxy
from swiftlet.api.tests.coded_repairs import Repairs
from swiftlet.api.tests.proxy import Proxy
from swiftlet.api.tests.test_coded_repair import Repaired, assert_read, places_of, put
from swiftlet.api.tests.test_erasure_coding import body_of
from swiftlet.errors import ChecksumMismatch, NotFound

SIZE = 10 * STRIPE + 1700
"""Fragments of several KiB each, longer than their metadata."""
_INTO = 3000
"""Bytes from an object's name in a record that are in the fragment's data."""


@pytest.fixture
async def repaired(tmp_path: Directory) -> AsyncIterator[Repaired]:
    async with coded_proxy(tmp_path, through_front=True) as (proxy, servers):
        yield proxy, servers, Repairs(servers, lambda: proxy.clock.now)


def in_files(servers: CodedServers) -> None:
    """Have fragments kept in files of their own."""
    for store in servers.stores:
        store.set_aggregate_below({CODED: 1000})


async def put_everywhere(proxy: Proxy, servers: CodedServers, size: int) -> None:
    """Store an object; return when each of its places has its fragment, as the last ones may get it later."""
    await put(proxy, [size])
    places = places_of(servers, f"o{size}")
    lacking = set(range(CODING.fragments))
    async with asyncio.timeout(60):
        while lacking:
            for place in sorted(lacking):
                with contextlib.suppress(NotFound):
                    servers.stores[places.at[place].id].verify(places.key_at(place))
                    lacking.discard(place)
            await asyncio.sleep(0.01)


def rot(root: Directory, servers: CodedServers, size: int, place: int, into: int = _INTO) -> int:
    """Flip a bit of the fragment of a place, wherever it is; return its device."""
    places = places_of(servers, f"o{size}")
    device = places.at[place].id
    directory = root / f"coded-{device}"
    for file in sorted(directory.rglob("*")):
        if not file.is_file() or "quarantined" in file.parts:
            continue
        content = file.read_bytes()
        at = (
            into if "large" in file.relative_to(directory).parts else last_record(content, f"/c/o{size}".encode(), into)
        )
        if at is not None:
            with file.open("r+b") as opened:
                opened.seek(at)
                opened.write(bytes([content[at] ^ 0x10]))
            return device
    raise AssertionError(f"nothing of o{size} is on device {device}")


def last_record(volume: bytes, name: bytes, into: int) -> int | None:
    """Return a place so many bytes behind the last name that has data there: what follows the last record is zeros."""
    end = len(volume)
    while (found := volume.rfind(name, 0, end)) >= 0:
        if any(volume[found + into - 8 : found + into + 8]):
            return found + into
        end = found
    return None


def audit(servers: CodedServers, size: int, place: int) -> None:
    """Have the auditor look at a fragment, which has to find it damaged and put it aside."""
    places = places_of(servers, f"o{size}")
    store = servers.stores[places.at[place].id]
    with pytest.raises(ChecksumMismatch):
        store.verify(places.key_at(place))
    assert not store.suffix_hashes(CODED, places.key_at(place).partition)


async def got(proxy: Proxy, size: int) -> tuple[int, bool]:
    """Return the status of a GET, and whether it has the object's bytes."""
    answer = await proxy.call("GET", f"c/o{size}")
    return answer.status, answer.body == body_of(size)


@pytest.mark.parametrize("is_large", [False, True], ids=["volume", "file"])
async def test_each_rotten_fragment_is_found_by_the_auditor_and_made_anew_by_the_next_round(
    repaired: Repaired, tmp_path: Directory, is_large: bool
) -> None:
    proxy, servers, repairs = repaired
    if is_large:
        in_files(servers)
    await put_everywhere(proxy, servers, SIZE)
    for place in range(CODING.fragments):
        device = rot(tmp_path, servers, SIZE, place)
        audit(servers, SIZE, place)
        assert await got(proxy, SIZE) == (200, True)
        report = await repairs.round_of(device)
        assert (report.rebuilt, report.failed) == (1, 0), place
        servers.stores[device].verify(places_of(servers, f"o{SIZE}").key_at(place))
        await assert_read(proxy, servers, needed=device, sizes=[SIZE])
    await repairs.round_of()
    assert (await repairs.round_of()).clean


@pytest.mark.parametrize("is_large", [False, True], ids=["volume", "file"])
async def test_two_rotten_fragments_at_once_are_read_around_and_made_anew(
    repaired: Repaired, tmp_path: Directory, is_large: bool
) -> None:
    proxy, servers, repairs = repaired
    if is_large:
        in_files(servers)
    await put_everywhere(proxy, servers, SIZE)
    for pair in itertools.combinations(range(CODING.fragments), CODING.parity):
        for place in pair:
            rot(tmp_path, servers, SIZE, place)
        # A reader finds what it needs itself; the auditor finds the rest.
        assert await got(proxy, SIZE) == (200, True), pair
        found_by_auditor(servers, SIZE, pair)
        report = await repairs.round_of()
        assert (report.rebuilt, report.failed) == (2, 0), pair
    for device in range(CODING.fragments):
        await assert_read(proxy, servers, needed=device, sizes=[SIZE])


def found_by_auditor(servers: CodedServers, size: int, rotten: Sequence[int]) -> None:
    """Have the auditor look at fragments of which a reader may have put some aside."""
    places = places_of(servers, f"o{size}")
    for place in rotten:
        store, key = servers.stores[places.at[place].id], places.key_at(place)
        if store.suffix_hashes(CODED, key.partition):
            audit(servers, size, place)


async def test_with_three_rotten_a_read_is_refused_and_nothing_is_removed(
    repaired: Repaired, tmp_path: Directory
) -> None:
    proxy, servers, repairs = repaired
    size = STRIPE - 5
    await put_everywhere(proxy, servers, size)
    for place in (0, 2, 3):
        rot(tmp_path, servers, size, place, into=900)
    refused = await proxy.call("GET", f"c/o{size}")
    assert refused.status == 503
    assert body_of(size)[:100] not in refused.body
    found_by_auditor(servers, size, (0, 2, 3))
    for _ in range(2):
        report = await repairs.round_of()
        assert report.too_few == report.failed > 0
        assert report.rebuilt == 0
        again = await proxy.call("GET", f"c/o{size}")
        assert again.status == 503
        assert b"4 of its 6 fragments are needed to read it (the other devices have none)" in again.body
    # What is in a fragment that is left is right, and read; the rest is not.
    left = await proxy.call("GET", f"c/o{size}", {"Range": "bytes=1024-1030"})
    assert (left.status, left.body) == (206, body_of(size)[1024:1031])
    assert (await proxy.call("GET", f"c/o{size}", {"Range": "bytes=0-5"})).status == 503
    kept = [number for number, store in enumerate(servers.stores) if store.partitions(CODED)]
    assert len(kept) == CODING.fragments - 3
    proxy.clock.now += 1
    await put_everywhere(proxy, servers, size)
    assert await got(proxy, size) == (200, True)


async def test_two_rotten_and_one_away_are_refused_until_it_is_back(repaired: Repaired, tmp_path: Directory) -> None:
    proxy, servers, repairs = repaired
    await put_everywhere(proxy, servers, SIZE)
    for place in (1, 5):
        rot(tmp_path, servers, SIZE, place)
        audit(servers, SIZE, place)
    away = places_of(servers, f"o{SIZE}").at[3].id
    with servers.away(away):
        assert (await proxy.call("GET", f"c/o{SIZE}")).status == 503
        report = await repairs.round_of()
        assert report.rebuilt == 0
        assert report.too_few > 0
    assert await got(proxy, SIZE) == (200, True)
    assert (await repairs.round_of()).rebuilt == 2
    await repairs.round_of()
    assert (await repairs.round_of()).clean
