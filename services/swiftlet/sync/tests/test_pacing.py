"""How fast rounds go, with a clock of the tests' own."""

from __future__ import annotations

from swiftlet.sync.moving.pacing import BURST_S, STEP, LinkBudget, Pace


class Clock:
    """Moves by sleeping alone."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def answers(pace: Pace, seconds: float, steps: int = 1) -> int:
    for _ in range(steps * STEP):
        pace.answered(seconds)
    return pace.allowed


def test_slow_answers_halve_what_goes_on_at_a_time_and_usual_ones_bring_it_back() -> None:
    pace = Pace(concurrency=8)
    assert answers(pace, 0.01, 10) == 8
    assert answers(pace, 0.05) == 4
    assert answers(pace, 0.05) == 2
    assert answers(pace, 0.05, 2) == 1
    assert [answers(pace, 0.01) for _ in range(3)] == [2, 3, 4]
    assert answers(pace, 0.01, 9) == 8


def test_what_is_always_slow_is_usual_and_what_is_very_fast_is_never_slow() -> None:
    pace = Pace(concurrency=4)
    assert answers(pace, 5.0, 20) == 4
    assert answers(pace, 5.5, 5) == 4
    quick = Pace(concurrency=4)
    assert answers(quick, 0.0001, 10) == 4
    assert answers(quick, 0.004, 5) == 4


async def test_bytes_go_at_their_rate_however_they_are_cut_and_pauses_save_up_little() -> None:
    for pieces in (1, 10, 1000):
        clock = Clock()
        pace = Pace(bytes_per_s=1000.0, clock=clock, sleep=clock.sleep)
        for _ in range(pieces):
            await pace.moved(20_000 // pieces)
        assert abs(clock.now - 120.0) < 0.001
        clock.now += 3600
        await pace.moved(10_000)
        assert abs(clock.now - 3720.0 - (10 - BURST_S)) < 0.001


async def test_without_a_limit_nothing_waits() -> None:
    clock = Clock()
    await Pace(clock=clock, sleep=clock.sleep).moved(1 << 40)
    assert clock.now == 100.0


async def test_a_link_has_a_budget_of_its_own_that_the_nodes_of_a_region_share() -> None:
    clock = Clock()
    pace = Pace(clock=clock, sleep=clock.sleep, links=LinkBudget(1000.0))
    began = clock.now
    for _ in range(10):
        await pace.moved(1_000_000)
        await pace.moved_over("west", 4, 500)
    assert clock.now - began == 20.0
    # The link to another region is another one.
    await pace.moved_over("north", 4, 500)
    assert clock.now - began == 22.0
    await pace.moved_over("west", 1, 0)
    assert clock.now - began == 22.0


async def test_what_passes_a_link_counts_for_the_budget_of_the_replicator_too() -> None:
    clock = Clock()
    pace = Pace(bytes_per_s=100.0, clock=clock, sleep=clock.sleep, links=LinkBudget(1000.0))
    began = clock.now
    await pace.moved_over("west", 1, 1000)
    assert clock.now - began == 10.0


async def test_rounds_of_all_kinds_share_the_budget_of_a_link() -> None:
    clock, links = Clock(), LinkBudget(1000.0)
    copies, repairs = (Pace(clock=clock, sleep=clock.sleep, links=links) for _ in range(2))
    began = clock.now
    for _ in range(5):
        await copies.moved_over("west", 1, 1000)
        # Of what was read, most was near.
        await repairs.moved(50_000, {"west": 1000})
    assert clock.now - began == 10.0
    # One link is slower than the other one.
    await repairs.moved(50_000, {"west": 1000, "north": 3000})
    assert clock.now - began == 13.0
