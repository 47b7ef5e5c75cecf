"""`swiftlet bench degrade`, `modes` and `whole`: options, files, signals; against a store in this process."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from swiftlet.bench.results import read_result
from swiftlet.bench.tests.store import Store, running
from swiftlet.main.commands.cli import run, swiftlet

LOAD: dict[str, Any] = {
    "title": "small",
    "objects": 5,
    "sizes": {"fixed": 100},
    "operations": {"read": 1},
    "closed": {"connections": [2], "think_s": 0.01},
    "count": 20,
}


@pytest.fixture
def store() -> Iterator[Store]:
    with running() as made:
        yield made


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("OS_", "ST_", "SWIFTLET_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ST_USER", "test:tester")
    monkeypatch.setenv("ST_KEY", "secret")


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    file = tmp_path / "small.yaml"
    file.write_text(yaml.safe_dump(LOAD))
    return str(file)


@pytest.fixture
def broken(store: Store, tmp_path: Path) -> Path:
    """While this file is there the store answers reads with an error."""
    file = tmp_path / "broken"
    store.fault = lambda method, *_: 503 if method == "GET" and file.exists() else None
    return file


def bench(*arguments: object) -> int:
    return run(swiftlet, ["bench", *map(str, arguments)])


def test_one_mode_of_options_is_measured_appended_shown_and_compared(
    store: Store, scenario: str, broken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, html, file = tmp_path / "out.json", tmp_path / "out.html", shlex.quote(str(broken))
    commands = ("--break", f"touch {file}", "--mend", f"rm {file}", "--whole", f"test ! -e {file}", "--seconds", 0.8)
    arguments = ("degrade", scenario, "--target", store.endpoint, "--name", "away", *commands, "--json", out)
    # Operations fail while it is broken.
    assert bench(*arguments, "--html", html) == 1
    printed = capsys.readouterr().out
    assert "away, broken" in printed
    assert "whole again after" in printed
    assert "away, broken: failed: " in printed
    assert html.read_text("utf-8").count("<svg") == 2
    assert bench(*arguments, "--append") == 1
    result = read_result(out)
    assert [(step.run, step.phase) for step in result.steps[::3]] == [(1, "before"), (2, "before")]
    assert result.modes["away"].about == f"break: touch {file}; mend: rm {file}; whole: test ! -e {file}"
    assert not store.objects
    assert bench("page", out, html) == 0
    capsys.readouterr()
    assert bench("compare", out, out, "--json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert ("away, mended", "whole_s") in {(row["phase"], row["figure"]) for row in rows}
    assert bench("compare", out, out) == 0
    assert "mode, phase" in capsys.readouterr().out


def test_modes_of_a_file_are_measured_until_one_fails_to_break(
    store: Store, scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, file, mended = tmp_path / "out.json", tmp_path / "modes.yaml", tmp_path / "mended"
    good = {"name": "good", "break": "true", "mend": "true"}
    bad = {"name": "bad", "break": "echo there is no pod >&2; exit 1", "mend": f"touch {shlex.quote(str(mended))}"}
    file.write_text(yaml.safe_dump({"modes": [good, bad, {**good, "name": "never"}]}))
    arguments = ("degrade", scenario, "--target", store.endpoint, "--modes", file, "--seconds", 0.4, "--json", out)
    assert bench(*arguments) == 1
    assert "break of bad: `echo there is no pod >&2; exit 1` failed with exit code 1: there is no pod" in (
        capsys.readouterr().err
    )
    assert mended.exists()
    assert list(read_result(out).modes) == ["good"]
    assert bench(*arguments, "--only", "good") == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_mends_what_is_broken_also_where_a_shell_has_it_ignored(
    number: signal.Signals, store: Store, scenario: str, broken: Path, tmp_path: Path
) -> None:
    out, file = tmp_path / "out.json", shlex.quote(str(broken))
    program = [sys.executable, "-m", "swiftlet.main", "bench", "degrade", scenario, "--target", store.endpoint]
    # It is still breaking when it is told to stop.
    options = ["--break", f"touch {file}; sleep 3600", "--mend", f"rm {file}", "--seconds", "1", "--json", str(out)]
    ignoring = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *program, *options]
    with subprocess.Popen(ignoring, stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not broken.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(number)
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert not broken.exists()
    assert "Cut short" in printed
    assert read_result(out).is_cut_short
    assert not store.objects


def test_what_ships_is_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("modes") == 0
    printed = capsys.readouterr().out
    assert "kubernetes: pod, node, container server, proxy, metadata server, redis, rolling restart" in printed
    assert "local: object server" in printed
    assert bench("modes", "local") == 0
    assert yaml.safe_load(capsys.readouterr().out)["modes"][0]["name"] == "object server"
    assert bench("modes", "--schema") == 0
    assert "within_s" in json.loads(capsys.readouterr().out)["$defs"]["Mode"]["properties"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "give --break and --mend, or --modes with a file or one of those that ship: kubernetes, local"),
        (["--break", "true"], 2, "--break needs --mend"),
        (["--break", "true", "--mend", "true", "--modes", "local"], 2, "--break is for one mode without --modes"),
        (["--break", "true", "--mend", "true", "--only", "node"], 2, "--only needs --modes"),
        (["--break", "true", "--mend", "true", "--name", "a/b"], 1, "name: 'a/b' in the command line"),
        (["--break", "true", "--mend", "true", "--task"], 1, "needs either mend"),
        (["--break", "true", "--mend", "true", "--seconds", "0"], 2, "--seconds"),
        (["--break", "true", "--mend", "true", "--append"], 2, "--append needs --json"),
        (["--break", "true", "--mend", "true", "--set", "closed.connections=[1,2]"], 1, "closed.connections=8"),
        (["--break", "true", "--mend", "true", "--store", "nothing.json"], 1, "nothing.json can't be read"),
        (["--modes", "nothing.yaml"], 1, "there is no file nothing.yaml"),
    ],
)
def test_wrong_usage_is_told_in_a_sentence(
    arguments: list[str], code: int, message: str, scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench("degrade", scenario, *arguments) == code
    assert message in " ".join(capsys.readouterr().err.split())
