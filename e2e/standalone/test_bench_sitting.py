"""The page of `make bench`, and what it is made of, without any store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.peers.syncs import counts
from bench.peers.turns import Extent, deletions, workloads
from bench.results import other_pages, render

STRACE = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 97.36    1.205000        1984       607         2 fsync
  2.64    0.032000        3555         9           fdatasync
------ ----------- ----------- --------- --------- ----------------
100.00    1.237000        2008       616         2 total
"""


def figures(rates: list[float]) -> dict[str, list[float]]:
    others = {name: [0.001] * len(rates) for name in ("p50_s", "p99_s", "cpu_per_operation_s")}
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
        "turns": 3,
        "seconds": 1.0,
        "systems": {
            "Swiftlet": {"durability": "3 copies", "syncs": {"fdatasync": 3.0}},
            "Other": {"durability": "none", "syncs": {}},
            "Third": {"durability": "some", "syncs": None},
        },
        "rows": {"PUT": {"Swiftlet": figures([90.0, 100.0, 110.0]), "Other": figures([200.0, 200.0, 200.0])}},
        "degraded": [
            {"mode": "disk", "phases": phases, "whole_s": 12.0},
            {"mode": "disk, OpenStack", "phases": phases, "whole_s": None},
        ],
        "missing": ["MinIO: minio is not built: bench/peers/build.sh"],
        "failed": ["Third, turn 1: it ended"],
    }
    return {**found, **changes}


def test_the_page_tells_wins_and_losses_alike() -> None:
    page = render(document(), [("Rings", "ring/RESULTS.md")])
    assert "| PUT | Swiftlet | 100 | 20% | 1.0 | 1 ms | 1 ms | 1 ms | 1 |  |  |" in page
    assert "| PUT | Other | 200 | 0% | 1.0 | 1 ms | 1 ms | 1 ms | 1 | 0.50 | 0.45 to 0.55 |" in page
    assert "`make bench BENCH_ARGS='--turns 3'` measures all of this in one sitting" in page
    assert "Load average: 0.1 before, 1.9 after" in " ".join(page.split())
    assert "| Swiftlet | 3 copies | 3.00 fdatasync |" in page
    assert "| Other | none | none |" in page
    assert "| Third | some | not counted |" in page
    assert "| disk | Swiftlet | after | 10 | 1 ms | 10 ms | 100 ms | 1 of 10 | 12 s |" in page
    assert "| disk | OpenStack | after | 10 | 1 ms | 10 ms | 100 ms | 1 of 10 | not in time |" in page
    assert "- MinIO: minio is not built: bench/peers/build.sh\n- Third, turn 1: it ended" in page
    assert "- [Rings](ring/RESULTS.md)" in page
    assert all(len(line) <= 100 for line in page.splitlines() if not line.startswith(("|", "-")))


def test_a_page_without_degraded_modes_and_failures_has_no_such_sections() -> None:
    page = render(document(degraded=[], missing=[], failed=[]), [])
    assert "## Bad days" not in page
    assert "## Not measured" not in page


def test_pages_of_other_folders_are_named_by_their_titles(tmp_path: Path) -> None:
    for name in ("ring", "disk"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "RESULTS.md").write_text(f"# The {name}\n\ntext\n")
    assert other_pages(tmp_path) == [("The disk", "disk/RESULTS.md"), ("The ring", "ring/RESULTS.md")]


def test_calls_are_read_from_straces_table() -> None:
    assert counts(STRACE) == {"fsync": 607, "fdatasync": 9}
    assert counts("") == {}


def test_a_quick_sitting_has_a_part_of_the_workloads() -> None:
    every, quick = (dict(workloads(Extent(1.0, "10 MiB", is_quick))) for is_quick in (False, True))
    assert quick.keys() < every.keys()
    assert {"PUT 10 MiB", "mix small-upload", "mix small-download"} <= every.keys()
    assert all(one.duration_s == 1.0 or one.count == 2 for one in every.values())


def test_deletions_are_as_many_as_a_store_takes_in_the_time() -> None:
    counted = {rate: deletions(rate, 2.0)[1] for rate in (1.0, 100.0, 1e6)}
    assert [one.count for one in counted.values()] == [40, 200, 3000]
    assert all(one.objects > 2 * (one.count or 0) for one in counted.values())
