"""Rounds of packing: which partitions they look at and when, what they pass by, and how packs go of which nothing is
left.

Fault model: places are away, or go by another ring; packers fail, or can't come further with a pack.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path as Directory

import pytest

from swiftlet.api.tests.coded import CODED, CODING, CodedServers, coded_proxy
from swiftlet.api.tests.coded_repairs import Repairs
from swiftlet.api.tests.proxy import Proxy
from swiftlet.api.tests.test_packed_objects import packed_at
from swiftlet.api.tests.test_small_objects import MOST, assert_read, holders_of, places_of, put
from swiftlet.boundaries.coded import NOTHING_PASSED_BY, CodedPlaces, Pack, Packed, PackTerms, PassedBy
from swiftlet.sync.coded.packing import PackLimits
from swiftlet.timestamp import Timestamp

LIMITS = PackLimits(after_s=100.0, least_bytes=1, most_bytes=64 << 20, round_bytes=256 << 20, live_share=0.7)
Made = tuple[Proxy, CodedServers, Repairs]


@pytest.fixture
async def made(tmp_path: Directory) -> AsyncIterator[Made]:
    async with coded_proxy(tmp_path, pack_below=MOST) as (proxy, servers):
        yield proxy, servers, Repairs(servers, lambda: proxy.clock.now)


@dataclass
class Scripted:
    """A packer that does what it is told, and remembers what it was asked."""

    done: Packed = field(default_factory=Packed)
    first: Packed | None = None
    """What it does in the partition that is looked at first."""
    at: dict[int, Packed] = field(default_factory=dict)
    """What it does in some partitions."""
    asked: list[tuple[int, PackTerms, PassedBy]] = field(default_factory=list)

    meanwhile: Callable[[], None] = lambda: None
    """What happens while it works in a partition."""

    async def pack(
        self, places: CodedPlaces, terms: PackTerms, timestamp: Timestamp, passed_by: PassedBy = NOTHING_PASSED_BY
    ) -> Packed:
        self.asked.append((places.key.partition, terms, passed_by))
        self.meanwhile()
        first, self.first = self.first, None
        return first or self.at.get(places.key.partition, self.done)

    async def delete(self, places: CodedPlaces, pack: Pack, timestamp: Timestamp) -> None:
        raise AssertionError


async def test_what_is_cold_is_packed_and_packs_of_dead_objects_go(made: Made) -> None:
    proxy, servers, repairs = made
    bodies = {f"o{number}": await put(proxy, f"o{number}", 300 + number) for number in range(12)}
    await servers.deliver_pending(proxy.cluster.rows)
    rounds = repairs.packing(LIMITS)
    first = await rounds.run_round([CODED])
    assert (first.looked, first.members, first.failed) == (servers.ring.partition_count, 0, 0)
    proxy.clock.now += 101
    # They are looked at again after a quarter of the time.
    assert (await rounds.run_round([CODED])).looked == 0
    repairs.passed_s += 25
    second = await rounds.run_round([CODED])
    assert (second.members, second.failed, second.unfinished) == (12, 0, 0)
    for name in bodies:
        assert packed_at(servers, name) == holders_of(servers, name)
    assert rounds.status() is not None
    await assert_read(proxy, servers, bodies)
    for name in bodies:
        bodies[name] = await put(proxy, name, 700)
    for _ in range(2):
        repairs.passed_s += 25
        third = await rounds.run_round([CODED])
        assert third.failed == 0
        if third.deleted:
            break
    assert third.retired == third.deleted == second.made
    for number in range(6):
        for partition in range(servers.ring.partition_count):
            shown = await repairs.repair.unsettled(servers.ring.device(number), CODED, None)
            assert shown[0] == [], partition
    # It is a deletion like others for replicators.
    proxy.clock.now += 60
    for _ in range(3):
        report = await repairs.round_of()
    assert report.clean, report
    await assert_read(proxy, servers, bodies)


async def test_packs_of_which_little_is_left_are_written_anew(made: Made) -> None:
    proxy, servers, repairs = made
    bodies = {f"o{number}": await put(proxy, f"o{number}", 300 + number) for number in range(60)}
    await servers.deliver_pending(proxy.cluster.rows)
    rounds = repairs.packing(LIMITS)
    proxy.clock.now += 101
    first = await rounds.run_round([CODED])
    assert (first.members, first.rewritten, first.packs) == (60, 0, 0)
    # Objects that are younger than the others keep theirs as copies.
    for number in range(0, 60, 2):
        bodies[f"o{number}"] = await put(proxy, f"o{number}", 500)
    await servers.deliver_pending(proxy.cluster.rows)
    repairs.passed_s += 25
    second = await rounds.run_round([CODED])
    assert (second.failed, second.unfinished, second.below) == (0, 0, 0)
    assert 0 < second.packs <= first.made
    assert 0 < second.live_bytes < 0.7 * second.pack_bytes
    assert 0 < second.rewritten <= second.retired == second.deleted
    assert 0 < second.members <= 30
    assert second.reread >= second.size
    await assert_read(proxy, servers, bodies)
    repairs.passed_s += 25
    third = await rounds.run_round([CODED])
    assert (third.made, third.rewritten, third.below) == (0, 0, 0)
    assert third.live_bytes >= 0.7 * third.pack_bytes
    await assert_read(proxy, servers, bodies)


async def test_a_round_that_goes_on_tells_how_far_it_is(made: Made) -> None:
    _, _, repairs = made
    packer = Scripted(Packed(members=1, size=LIMITS.round_bytes // 3, rewritten=2))
    rounds, told = repairs.packing(LIMITS, packer), list[object]()

    def work() -> None:
        repairs.passed_s += 5
        told.append(rounds.running())

    packer.meanwhile = work
    assert rounds.running() is None
    report = await rounds.run_round([CODED])
    assert told == [
        {"runningForS": 5.0 * number, "partitionForS": 5.0, "looked": number - 1, "made": number - 1, "rewritten": done}
        for number, done in ((1, 0), (2, 2), (3, 4), (4, 6))
    ]
    assert report.looked == 4
    assert rounds.running() is None


async def test_bytes_that_are_read_anew_count_in_a_round(made: Made) -> None:
    _, _, repairs = made
    packer = Scripted(Packed(members=1, size=1, rewritten=1, reread=LIMITS.round_bytes // 4))
    report = await repairs.packing(LIMITS, packer).run_round([CODED])
    assert (report.looked, report.rewritten, report.reread) == (4, 4, LIMITS.round_bytes)


async def test_nothing_is_begun_while_a_place_is_away(made: Made) -> None:
    proxy, servers, repairs = made
    await put(proxy, "o", 500)
    await servers.deliver_pending(proxy.cluster.rows)
    proxy.clock.now += 101
    last = places_of(servers, "o").at[CODING.fragments - 1].id
    rounds = repairs.packing(LIMITS)
    with servers.away(last):
        report = await rounds.run_round([CODED])
        assert (report.looked, report.waiting) == (0, servers.ring.partition_count)
    assert packed_at(servers, "o") == []
    assert (await rounds.run_round([CODED])).members == 1


async def test_what_packers_do_not_come_further_with_is_passed_by(made: Made) -> None:
    proxy, _servers, repairs = made
    packer = Scripted(first=Packed(unfinished=[b"p" * 16], left_out=[(b"c" * 16, 7)]))
    rounds = repairs.packing(LIMITS, packer)
    await rounds.run_round([CODED])
    assert packer.asked[0][1:] == (
        PackTerms(Timestamp.at(proxy.clock.now - 100), LIMITS.least_bytes, LIMITS.most_bytes, LIMITS.live_share),
        PassedBy(),
    )
    where = packer.asked[0][0]
    packer.asked.clear()
    packer.done = Packed(stopped="refused")
    repairs.passed_s += 25
    report = await rounds.run_round([CODED])
    assert {partition: passed_by for partition, _, passed_by in packer.asked} == {
        partition: PassedBy(frozenset([b"p" * 16]), frozenset([(b"c" * 16, 7)])) if partition == where else PassedBy()
        for partition in range(16)
    }
    # A partition in which something failed is left alone for twice the time between two looks, then for twice that.
    assert (report.failed, report.unfinished, report.left_out) == (16, 1, 1)
    for pause_s, looked in ((49.0, 0), (2.0, 16), (98.0, 0), (3.0, 16)):
        repairs.passed_s += pause_s
        assert (await rounds.run_round([CODED])).looked == looked, pause_s
    # The pack is tried again then. Copies that stay out are known until a packer does not find them any more.
    assert {passed_by.packs for *_, passed_by in packer.asked[-16:]} == {frozenset()}
    assert {passed_by.copies for *_, passed_by in packer.asked[-16:]} == {frozenset(), frozenset([(b"c" * 16, 7)])}
    packer.done, packer.at = Packed(), {where: Packed(left_out=[(b"d" * 16, 8)])}
    repairs.passed_s += 1000
    assert (await rounds.run_round([CODED])).left_out == 1
    packer.at = {}
    repairs.passed_s += 1000
    assert (await rounds.run_round([CODED])).left_out == 0


async def test_a_pack_that_needs_nothing_any_more_is_unfinished_no_longer(made: Made) -> None:
    _, _, repairs = made
    first, second, third = (bytes([number]) * 16 for number in range(3))
    packer = Scripted(Packed(looked_at_all=True))
    rounds = repairs.packing(LIMITS, packer)

    async def unfinished_after(done: Packed | None, passed_s: float) -> int:
        """Look at all partitions, and do this in the third one."""
        repairs.passed_s += passed_s
        packer.at = {} if done is None else {3: done}
        return (await rounds.run_round([CODED])).unfinished

    assert await unfinished_after(Packed(unfinished=[first, second, third], looked_at_all=True), 0) == 3
    # That nothing is to be done in other partitions says nothing of them, nor what is done while they are passed by.
    assert await unfinished_after(Packed(looked_at_all=True), 25) == 3
    assert await unfinished_after(Packed(unfinished=[second], looked_at_all=True), 100) == 1
    # It was stopped before all were looked at.
    assert await unfinished_after(Packed(stopped="refused"), 200) == 1
    assert await unfinished_after(None, 400) == 0


async def test_packs_of_partitions_that_are_elsewhere_are_forgotten(made: Made) -> None:
    _, servers, repairs = made
    packer = Scripted(Packed(unfinished=[b"p" * 16], looked_at_all=True))
    rounds = repairs.packing(LIMITS, packer)
    assert (await rounds.run_round([CODED])).unfinished == servers.ring.partition_count
    packer.done = Packed(looked_at_all=True)
    repairs.packed_for = []
    assert (await rounds.run_round([CODED])).unfinished == 0


async def test_a_round_has_bounds_and_a_time_of_zero_turns_packing_off(made: Made) -> None:
    _, servers, repairs = made
    packer = Scripted(Packed(members=1, size=LIMITS.round_bytes // 4))
    rounds = repairs.packing(LIMITS, packer)
    assert (await rounds.run_round([CODED])).looked == 4
    # The others come first then: what has more to pack is due at once, in any order.
    assert (await rounds.run_round([CODED])).looked == 4
    off = repairs.packing(PackLimits(0.0, 1, 1, 1), packer)
    assert (await off.run_round([CODED])).looked == 0
    assert servers.ring.partition_count == 16
