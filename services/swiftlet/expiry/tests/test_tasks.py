"""Times and names of tasks, and who works on them first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftlet.expiry.ranks import TAKERS, rank_of
from swiftlet.expiry.tasks import CONTAINERS, LATEST, PARTS, Task, delete_at_of, due_before, is_expired, task_of
from swiftlet.names import Path
from swiftlet.timestamp import Timestamp

QUEUED = Timestamp.at(5)
_part = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=20)
_paths = st.builds(Path, _part, _part, st.text(st.characters(codec="utf-8"), min_size=1, max_size=40))
_times = st.integers(0, LATEST)


@given(_times, _paths, st.integers(0, 9))
def test_a_row_is_the_task_that_it_was_made_of(delete_at: int, path: Path, policy: int) -> None:
    task = Task(delete_at, path, policy, QUEUED)
    assert task_of(task.name, policy, QUEUED) == task
    assert "\0" not in task.name
    assert task.container in CONTAINERS
    assert task_of(task.name, policy, Timestamp.at(6)) is None, "a row of another version"


@given(_times, _times, _paths)
def test_what_is_due_sorts_before_the_rest(delete_at: int, now: int, path: Path) -> None:
    name = Task(delete_at, path, 0, QUEUED).name
    assert (name < due_before(now)) == (delete_at <= now)


@given(st.text(max_size=60))
def test_other_rows_are_no_tasks(name: str) -> None:
    found = task_of(name, 0, QUEUED)
    assert found is None or found.name == name


@pytest.mark.parametrize(
    "name",
    ["", "0000000001", "1-/a/c/o", "0000000001-/a/c", "0000000001-a/c/o", "0000000001-/a/c/%ff", "0000000001-/a//o"],
)
def test_rows_that_somebody_else_made(name: str) -> None:
    assert task_of(name, 0, QUEUED) is None
    assert task_of(f"{name}?{QUEUED.value}", 0, QUEUED) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, None), ("0000001100", 1100), ("1100", 1100), ("", None), ("x", None), ("1" * 11, None), ("\u0663", None)],
)
def test_the_time_in_metadata(value: str | None, expected: int | None) -> None:
    metadata = {} if value is None else {"X-Delete-At": value}
    assert delete_at_of(metadata) == expected
    assert is_expired(metadata, 1099.9) is False
    assert is_expired(metadata, 1100.0) is (expected is not None)


def test_all_times_are_spread_over_the_same_containers() -> None:
    tasks = [Task(number * 10**6, Path("a", "c", str(number)), 0, QUEUED) for number in range(2000)]
    assert len({task.container for task in tasks}) == PARTS


def test_all_times_of_an_object_are_in_one_container() -> None:
    assert len({Task(number * 10**6, Path("a", "c", "o"), 0, QUEUED).container for number in range(2000)}) == 1


def test_all_nodes_agree_on_the_order() -> None:
    nodes = [f"host{number}:6200" for number in range(7)]
    firsts = set()
    for part in range(100):
        container = f"0000000000-{part:02x}"
        ranks = {node: rank_of(container, nodes, [node]) for node in nodes}
        assert sorted(rank for rank in ranks.values() if rank is not None) == list(range(TAKERS))
        assert rank_of(container, nodes[::-1], nodes[:3]) == min(
            (ranks[node] for node in nodes[:3] if ranks[node] is not None), default=None, key=lambda rank: rank or 0
        )
        firsts.add(next(node for node, rank in ranks.items() if rank == 0))
    assert firsts == set(nodes), "the work is spread"


def test_a_node_that_is_not_in_the_rings_has_no_rank() -> None:
    assert rank_of("c", ["a:1"], ["b:1"]) is None
    assert rank_of("c", [], ["b:1"]) is None
