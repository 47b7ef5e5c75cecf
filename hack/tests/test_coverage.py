"""`hack/coverage.d/summary.py` adds up reports by room and by crate."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SUMMARY = Path(__file__).parents[1] / "coverage.d" / "summary.py"


def summary(*arguments: str | Path, given: str = "") -> list[list[str]]:
    run = subprocess.run([sys.executable, SUMMARY, *arguments], input=given, capture_output=True, text=True, check=True)
    return [line.split() for line in run.stdout.splitlines()]


def test_python_by_room(tmp_path: Path) -> None:
    def file(ran: int, taken: int) -> dict[str, object]:
        counts = {"covered_lines": ran, "num_statements": 10, "covered_branches": taken, "num_branches": 4}
        return {"summary": counts}

    files = {
        "services/swiftlet/api/app.py": file(5, 1),
        "services/swiftlet/api/http/ranges.py": file(10, 4),
        "operator/swiftlet_operator/plan/decide.py": file(0, 0),
        "elsewhere.py": file(10, 4),
    }
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"files": files}))
    assert summary("python", report)[1:] == [
        ["swiftlet/api", "75.0%", "of", "20", "62.5%", "of", "8"],
        ["swiftlet_operator/plan", "0.0%", "of", "10", "0.0%", "of", "4"],
        ["all", "50.0%", "of", "30", "41.7%", "of", "12"],
    ]


def test_rust_by_crate(tmp_path: Path) -> None:
    def file(name: str, covered: int) -> dict[str, object]:
        counts = {"covered": covered, "count": 8}
        return {"filename": f"/somewhere/native/crates/{name}", "summary": {"lines": counts, "regions": counts}}

    files = [file("store/src/commit.rs", 8), file("store/src/writer.rs", 4), file("hash/tests/vectors.rs", 8)]
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"data": [{"files": files}]}))
    assert summary("rust", report)[1:] == [
        ["store", "75.0%", "of", "16", "75.0%", "of", "16"],
        ["all", "75.0%", "of", "16", "75.0%", "of", "16"],
    ]


def test_binaries_are_those_of_tests() -> None:
    messages = (
        {"reason": "compiler-artifact", "profile": {"test": True}, "executable": "/target/store-1"},
        {"reason": "compiler-artifact", "profile": {"test": False}, "executable": "/target/tool"},
        {"reason": "compiler-artifact", "profile": {"test": True}, "executable": None},
        {"reason": "build-finished", "success": True},
    )
    assert summary("binaries", given="\n".join(map(json.dumps, messages))) == [["/target/store-1"]]
