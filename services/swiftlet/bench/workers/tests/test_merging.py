"""Steps of several generators become one: histograms are added, and nothing is counted twice."""

from __future__ import annotations

import pytest

from swiftlet.bench.results import Failures, Point
from swiftlet.bench.tests.results import operation, step
from swiftlet.bench.workers.merging import merged_operation, merged_points, merged_step


def point(at_s: float, operations_per_s: float, failed: int = 0, p99_s: float = 0.001) -> Point:
    return Point(
        at_s=at_s, operations_per_s=operations_per_s, bytes_per_s=operations_per_s * 10, failed=failed, p99_s=p99_s
    )


def test_percentiles_are_those_of_all_operations_and_not_means() -> None:
    fast, slow = operation(p=1, ended=990), operation(p=100, ended=10)
    found = merged_operation([fast, slow])
    assert found.latency.quantile_s(0.5) == pytest.approx(0.001)
    # The mean of both workers' 99th percentiles would be 50 ms.
    assert found.latency.quantile_s(0.99) == pytest.approx(0.001)
    assert found.latency.quantile_s(0.995) == pytest.approx(0.1)
    assert (found.ended, found.succeeded, found.bytes) == (1000, 1000, 1_000_000)


def test_reads_that_were_compared_are_added() -> None:
    several = [operation().model_copy(update={"compared": count}) for count in (30, 4)]
    assert merged_operation(several).compared == 34


def test_failures_are_added_by_kind_with_one_example() -> None:
    several = [operation(failures={"timeout": Failures(count=count, example=f"{count}")}) for count in (2, 3)]
    assert merged_operation(several).failures == {"timeout": Failures(count=5, example="2")}


def test_a_step_has_the_connections_and_rates_of_all() -> None:
    found = merged_step([step(), step(operations={"create": operation()}, ended_early="it broke", busiest=0.5)])
    assert (found.workers, found.connections, found.all_succeeded) == (2, 8, 2000)
    assert found.operations.keys() == {"read", "create"}
    assert (found.ended_early, found.generator_busiest) == ("it broke", 0.5)
    assert (found.window_s, found.workers_operations_per_s) == (10.0, 200.0)
    assert merged_step([step()]).model_copy(update={"points": ()}) == step().model_copy(update={"points": ()})


def test_points_of_different_moments_are_put_together_by_time() -> None:
    one = [point(1, 10), point(2, 20, failed=1), point(3, 30)]
    other = [point(0.5, 4), point(1.5, 8, failed=2, p99_s=0.5), point(2.5, 12)]
    found = merged_points([one, other])
    assert [each.at_s for each in found] == [1, 2, 3]
    assert [each.operations_per_s for each in found] == pytest.approx([16, 30, 36])
    assert [each.failed for each in found] == [0, 3, 0]
    assert [each.p99_s for each in found] == [0.5, 0.5, 0.001]
    # All that was done is in them.
    assert sum(each.operations_per_s for each in found) == pytest.approx(60 + 2 + 8 + 12)
    assert merged_points([[], []]) == ()
