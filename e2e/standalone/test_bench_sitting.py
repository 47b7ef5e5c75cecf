"""The page of `make bench`, and what it is made of, without any store."""

from __future__ import annotations

import math
import re
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil

from bench.peers.syncs import counts
from bench.peers.systems import Running, System
from bench.peers.turns import COMPARED, LARGE_READS, Extent, Limit, deletions, measure, workloads
from bench.results import laid_out, render
from bench.sitting import STOP_S, ended, kept_s

STRACE = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 97.36    1.205000        1984       607         2 fsync
  2.64    0.032000        3555         9           fdatasync
------ ----------- ----------- --------- --------- ----------------
100.00    1.237000        2008       616         2 total
"""


def figures(rates: list[float]) -> dict[str, list[float]]:
    names = ("p50_s", "p99_s", "cpu_per_operation_s")
    others = {**{name: [0.001] * len(rates) for name in names}, "generator_cpu_per_operation_s": [0.00005] * len(rates)}
    return {"operations_per_s": rates, "bytes_per_s": [1e6] * len(rates), **others, "failed": [0.0, 1.0]}


def document(**changes: Any) -> dict[str, Any]:
    environment = {"processors": 2, "processor": "P", "memory_bytes": 8_000_000_000, "system": "Linux"}
    phase = {"p50_s": 0.001, "p99_s": 0.01, "max_s": 0.1, "operations_per_s": 10.0, "succeeded": 9, "failed": 1}
    phases = [{"name": name, **phase} for name in ("before", "during", "after")]
    found: dict[str, Any] = {
        "command": "make bench",
        "arguments": ["--turns", "3", "--page", "bench/RESULTS.md"],
        "began": "2026-11-28T18:40:00+00:00",
        "environment": environment,
        "load_average": {"before": 0.1, "after": 1.9},
        "took_s": 2040,
        "turns": 3,
        "seconds": 1.0,
        "systems": {
            "Swiftlet": {
                "version": "1.2",
                "settings": "as it comes",
                "durability": "3 copies",
                "syncs": {"fdatasync": 3.0},
            },
            "Other": {"version": "3", "settings": "one", "durability": "none", "syncs": {}},
            "Third": {"version": "4", "settings": "one", "durability": "some", "syncs": None},
        },
        "rows": {"PUT": {"Swiftlet": figures([90.0, 100.0, 110.0]), "Other": figures([200.0, 200.0, 200.0])}},
        "degraded": [
            {"mode": "disk", "phases": phases, "whole_s": 12.0},
            {"mode": "disk, OpenStack", "phases": phases, "whole_s": None},
            {"mode": "redis", "phases": phases, "whole_s": 3.0},
        ],
        "without": {"redis": "there is none"},
        "missing": ["MinIO: minio is not built: bench/peers/build.sh"],
        "failed": ["Third, turn 1: it ended"],
    }
    return {**found, **changes}


def test_lines_of_prose_end_at_100_columns() -> None:
    command = "python -m bench.one --rounds 5 --seconds 1 --workers 1 --clients 20 --only front --directory /a/b/c"
    prose = f"How `{command}` came to be measured, `what fits in a line`, and [where it stands](page.md#one)."
    row = f"| {'cell | ' * 20}".strip()
    told, table = laid_out([prose, row]).split("\n\n")
    assert table == f"{row}\n"
    assert max(map(len, told.splitlines())) <= 100
    assert told.replace("\n", " ") == prose


def test_the_page_tells_wins_and_losses_alike() -> None:
    page = render(document(), ["## Rings", "| a |", "a text"])
    assert "| PUT | Swiftlet | 100 | 20% | 1.0 | 1 ms | 1 ms | 1 ms | 5% | 1 |  |  |" in page
    assert "| PUT | Other | 200 | 0% | 1.0 | 1 ms | 1 ms | 1 ms | 5% | 1 | 0.50 | 0.45 to 0.55 |" in page
    assert "`make bench BENCH_ARGS='--turns 3'` measures stores in turns" in page
    assert "Load average: 0.1 before, 1.9 after" in " ".join(page.split())
    assert "2026-11-28T18:40:00+00:00, 34 minutes long, on 2 processors" in " ".join(page.split())
    assert "| Swiftlet | 1.2 | as it comes | 3 copies | 3.00 fdatasync |" in page
    assert "| Other | 3 | one | none | none |" in page
    assert "| Third | 4 | one | some | not counted |" in page
    assert "| disk | Swiftlet | after | 10 | 1 ms | 10 ms | 100 ms | 1 of 10 | 12 s |" in page
    assert "| disk | OpenStack | after | 10 | 1 ms | 10 ms | 100 ms | 1 of 10 | not in time |" in page
    assert "| redis | OpenStack | no counterpart: there is none |  |  |  |  |  |  |" in page
    assert "- MinIO: minio is not built: bench/peers/build.sh\n- Third, turn 1: it ended" in page
    assert page.endswith("## Rings\n\n| a |\n\na text\n")
    assert all(len(line) <= 100 for line in page.splitlines() if not line.startswith(("|", "-")))


def test_a_page_without_degraded_modes_and_failures_has_no_such_sections() -> None:
    page = render(document(degraded=[], missing=[], failed=[]), [])
    assert "## Bad days" not in page
    assert "## Not measured" not in page


def test_no_turn_begins_that_would_last_for_longer() -> None:
    now = 0.0
    limit = Limit(100.0, lambda: now)
    for name, seconds in (("fast", 10.0), ("slow", 40.0)):
        assert limit.admits(name, 1)
        with limit.counting(name):
            now += seconds
    # A store without a turn may be as slow as the slowest.
    assert limit.admits("third", 1)
    now += 30.0
    assert not limit.admits("slow", 2)
    assert not limit.admits("third", 2)
    assert limit.admits("fast", 2)
    left_out = [f"{name}, turn 2: there was no time left for it" for name in ("slow", "third")]
    assert limit.reached == left_out


def test_stores_without_time_are_left_out_and_told(tmp_path: Path) -> None:
    def never(_: Path) -> AbstractContextManager[Running]:
        raise AssertionError("it began")

    limit = Limit(0.0)
    system = System("A", "", "", lambda: "", lambda: "", never)
    found = measure([system], tmp_path, 2, Extent(1.0, "1 MiB"), lambda _: None, limit)
    assert (found.rows, found.failed, len(limit.reached)) == ({}, [], 2)


def test_degraded_modes_end_with_all_that_they_started(tmp_path: Path) -> None:
    assert ended([sys.executable, "-c", ""], 60.0) == ""
    assert ended([sys.executable, "-c", "raise SystemExit(3)"], math.inf) == "exit code 3"
    child = tmp_path / "child"
    program = f"sleep 600 & echo $! > {child}; wait"
    assert ended(["sh", "-c", program], 2.0) == "there was no time left for them"
    while child.exists() and _is_running(int(child.read_text())):
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_calls_are_read_from_straces_table() -> None:
    assert counts(STRACE) == {"fsync": 607, "fdatasync": 9}
    assert counts("") == {}


def test_a_quick_sitting_has_a_part_of_the_workloads() -> None:
    every, quick = (dict(workloads(Extent(1.0, "10 MiB", is_quick))) for is_quick in (False, True))
    assert quick.keys() < every.keys()
    assert {"PUT 10 MiB", "mix small-upload", "mix small-download"} <= every.keys()
    assert all(one.duration_s == 1.0 or one.count in (2, LARGE_READS) for one in every.values())
    reads = [one for one in every.values() if one.operations.read]
    assert reads
    assert all(one.verify == COMPARED for one in reads)


def test_the_page_says_which_reads_the_load_generator_compared() -> None:
    told = "it compares 10% of reads byte by byte with what was written"
    assert told in " ".join(render(document(compared=0.1), []).split())
    assert "byte by byte" not in render(document(), [])


def test_deletions_are_as_many_as_a_store_takes_in_the_time() -> None:
    counted = {rate: deletions(rate, 2.0)[1] for rate in (1.0, 100.0, 1e6)}
    assert [one.count for one in counted.values()] == [40, 200, 3000]
    assert all(one.objects > 2 * (one.count or 0) for one in counted.values())


def test_make_bench_quick_has_a_limit_below_five_minutes() -> None:
    recipe = (Path(__file__).parents[2] / "Makefile").read_text().partition("\nbench-quick:")[2].partition("\n\n")[0]
    (most_s,) = re.findall(r"--most-seconds (\d+)", recipe)
    # Degraded modes that are ended then have so long to stop their stores; the rest is for writing the page.
    assert int(most_s) + STOP_S + 30 < 300
    # There is time for turns of stores beside the mode.
    assert int(most_s) > 2 * kept_s(["process"])
