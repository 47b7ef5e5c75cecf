"""Commands of a shell: their errors, their ends, and what they know."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from swiftlet.bench.degrade.commands import MAX_SHOWN_BYTES, Commands
from swiftlet.bench.errors import BenchError


def test_what_fails_is_told_with_the_end_of_what_it_printed() -> None:
    commands = Commands(60.0)
    with pytest.raises(
        BenchError, match=r"break of x: `echo no such pod >&2; exit 3` failed with exit code 3: no such"
    ):
        commands.run("break of x", "echo no such pod >&2; exit 3")
    with pytest.raises(BenchError, match=r"`kill -9 ..` was ended by SIGKILL: it printed nothing"):
        commands.run("break of x", "kill -9 $$")
    with pytest.raises(BenchError) as failed:
        commands.run("x", "yes | head -c 1000000; exit 1")
    assert len(str(failed.value)) < MAX_SHOWN_BYTES + 100


def test_what_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    left = tmp_path / "left"
    text = f"(sleep 600; touch {left}) & echo begun; wait"
    with pytest.raises(BenchError, match=r"took longer than 0.2 s; raise within_s: begun"):
        Commands(0.2).run("mend of x", text)
    assert not left.exists()


def test_a_command_that_leaves_something_running_is_over_all_the_same() -> None:
    Commands(60.0).run("break of x", "sleep 5 &")


def test_a_command_is_ended_from_outside() -> None:
    commands = Commands(600.0)
    errors: list[BenchError] = []

    def runs() -> None:
        try:
            commands.run("break of x", "sleep 600")
        except BenchError as error:
            errors.append(error)

    thread = threading.Thread(target=runs)
    thread.start()
    while thread.is_alive():
        commands.end()
        time.sleep(0.01)
    assert "was ended by SIGTERM" in str(errors[0])


def test_one_command_is_asked_until_it_succeeds(tmp_path: Path) -> None:
    counted = tmp_path / "counted"
    commands = Commands(60.0, lambda: {"COUNTED": str(counted)})
    commands.surroundings["WANTED"] = "2"
    text = 'echo >> "$COUNTED"; test $(wc -l < "$COUNTED") -eq "$WANTED"'
    assert commands.until_it_succeeds("whole of x", text, threading.Event())
    assert len(counted.read_text()) == 2
    assert not Commands(0.1).until_it_succeeds("whole of x", "sleep 600", threading.Event())
    over = threading.Event()
    over.set()
    assert not commands.until_it_succeeds("whole of x", "true", over)
