"""The command line: help, exit codes, and one-line messages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from swiftlet.errors import SettingsError
from swiftlet.main.commands.cli import run, swiftlet

SOURCES = str(Path(__file__).parents[3])


def test_help_lists_all_commands_without_loading_them() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from swiftlet.main.commands.cli import run, swiftlet; "
        "run(swiftlet, ['--help']); heavy = {'aiohttp', 'pydantic', 'structlog', 'yaml'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    shown = subprocess.run([sys.executable, "-c", code, SOURCES], capture_output=True, text=True, check=True).stdout
    for name in (
        "cp",
        "sync",
        "standalone",
        "proxy",
        "object",
        "container",
        "metadata",
        "replicator",
        "ring",
        "settings",
        "store",
        "version",
    ):
        assert f"\n  {name} " in shown


def test_domain_errors_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(swiftlet, ["proxy", "--config", str(tmp_path / "absent.yaml")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("swiftlet: can't read the settings file")
    assert error.count("\n") == 1


def test_wrong_usage_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(swiftlet, ["proxi"]) == 2
    assert run(swiftlet, ["settings", "nothing"]) == 2
    assert "No such command" in capsys.readouterr().err


def test_exit_codes_of_errors() -> None:
    @click.command()
    @click.argument("kind")
    def fail(kind: str) -> None:
        raise {"ctrl-c": KeyboardInterrupt(), "domain": SettingsError("wrong"), "exit": click.exceptions.Exit(3)}[kind]

    assert run(fail, ["ctrl-c"]) == 130
    assert run(fail, ["domain"]) == 1
    assert run(fail, ["exit"]) == 3


def test_version_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(swiftlet, ["version"]) == 0
    assert run(swiftlet, ["settings", "proxy"]) == 0
    shown = capsys.readouterr().out
    assert "swiftlet-native" in shown
    assert "post_quorum_wait_s: 0.5" in shown
