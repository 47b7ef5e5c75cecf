"""What people see while a run goes on, on a terminal and in the file that a coordinator keeps."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from swiftlet.bench.progress import Line, line_of
from swiftlet.bench.runner import Progress

RECENT = {"succeeded": 50, "moved_bytes": 500_000, "p99_s": 0.0123}


def test_the_line_tells_what_goes_on_now() -> None:
    text = line_of(Progress("read, 8 connections", 1_000, 0, 12.3, RECENT), 0.25)
    assert text == "read, 8 connections  12 s  200 op/s  2 MB/s  p99 12.3 ms"
    assert line_of(Progress("read", 1_000, 1_234, 12.3, RECENT), 0.25).endswith("  1,234 failed")


def test_a_terminal_has_one_line_that_is_written_over(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    line = Line()
    for seconds in (1.0, 2.0):
        line.report(Progress("read", 10, 0, seconds, RECENT))
    line.clear()
    first, second, third, cleared = capsys.readouterr().err.split("\r")
    assert (first, cleared) == ("", "\x1b[K")
    assert second.startswith("read  1 s  ")
    assert third.startswith("read  2 s  ")


def test_nothing_is_written_where_nobody_watches(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    Line().report(Progress("read", 10, 0, 1.0, RECENT))
    Line(tmp_path / "progress").report(Progress("read", 10, 0, 1.0, RECENT))
    assert capsys.readouterr().err == ""
    assert (tmp_path / "progress").read_text("utf-8").startswith("read  1 s  ")
    assert [file.name for file in tmp_path.iterdir()] == ["progress"]


def test_a_file_that_takes_nothing_ends_no_run(tmp_path: Path) -> None:
    Line(tmp_path / "missing" / "progress").report(Progress("read", 10, 0, 1.0, RECENT))
