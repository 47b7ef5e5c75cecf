"""`swiftlet policy move`: what it refuses, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from swiftlet.main.commands.cli import run, swiftlet
from swiftlet.main.commands.policy_move import checked
from swiftlet.main.commands.policy_move_command import Printer, move
from swiftlet.main.tests.test_status_reports import KEY
from swiftlet.model import DatabaseName
from swiftlet.policy_mover.container_pass import PassReport
from swiftlet.policy_mover.mover import Round, Told
from swiftlet.policy_mover.phases import Standing
from swiftlet.policy_moves import Phase, PolicyMove
from swiftlet.settings import ProxySettings, load_settings
from swiftlet.timestamp import Timestamp

NAME = DatabaseName("AUTH_a", "c")
AT_S = 1_700_000_000.0


@pytest.fixture
def config(tmp_path: Path) -> str:
    """Settings of a proxy."""
    file = tmp_path / "settings.yaml"
    policies = [
        {"index": 0, "name": "usual", "default": True},
        {"index": 1, "name": "cold"},
        {"index": 2, "name": "old", "deprecated": True},
    ]
    cluster = {"key": KEY, "hash_path_suffix": "suffix", "rings": str(tmp_path)}
    file.write_text(yaml.safe_dump({"cluster": cluster, "policies": policies}))
    return str(file)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["tin", "cold"], "SOURCE: there is no policy tin; the policies are: usual, cold, old"),
        (["usual", "tin"], "TARGET: there is no policy tin; the policies are: usual, cold, old"),
        (["usual", "Usual"], "TARGET: Usual is the policy that the containers have; name another one"),
        (["usual", "old"], "TARGET: policy old is deprecated and takes no new containers; name another one"),
    ],
)
def test_policies_that_can_not_be_moved_between_are_refused_by_name(
    config: str, arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(swiftlet, ["policy", "move", *arguments, "--config", config]) == 1
    assert problem in capsys.readouterr().err


def test_containers_of_a_policy_that_is_being_retired_can_be_moved(config: str) -> None:
    assert checked(load_settings(ProxySettings, Path(config)).load_policies(), "old", "Cold") == (2, 1)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--container", "c"], "Invalid value for --container: names a container of --account"),
        (["--rate", "fast"], "'--rate': 'fast' is not a quantity"),
        (["--rate", "0"], "'--rate': no bytes per second"),
        (["--together", "0"], "'--together': 0 is not in the range"),
        (["--service", "10.0.0.7"], "'--service': '10.0.0.7' is no base URL"),
        (["--service", "http://a:99999"], "'--service': 'http://a:99999' is no base URL"),
        (["--service", "http://a:8081/statusz"], "'--service': 'http://a:8081/statusz' is no base URL"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(config: str, options: list[str], problem: str) -> None:
    refused = CliRunner().invoke(move, ["usual", "cold", "--config", config, *options])
    assert refused.exit_code == 2
    assert problem in " ".join(refused.output.split())


def standing(phase: Phase, known_s: float | None = AT_S) -> Standing:
    """A container's, whose phase lasts 100 seconds."""
    known = None if known_s is None else Timestamp.at(known_s)
    state = PolicyMove(0, 1, phase, Timestamp.at(AT_S), Timestamp.at(1), known)
    return Standing(state, AT_S + 100, AT_S + 86_500 if phase is Phase.MOVING else None)


def printed(told: Told | Round, as_json: bool = False, now_s: float = AT_S) -> tuple[str, str]:
    """What goes to standard output and to standard error."""
    out: dict[bool, list[str]] = {False: [], True: []}

    def echo(text: str, err: bool = False) -> None:
        out[err].append(text)

    printer = Printer(as_json, lambda: now_s, echo)
    if isinstance(told, Round):
        printer.end(told)
    else:
        printer.tell(told)
    return "\n".join(out[False]), "\n".join(out[True])


def test_phases_are_printed_with_the_time_until_when_they_last() -> None:
    said = {
        "not begun": Standing(None),
        "announced until 2023-11-14 22:15:00 UTC or later": standing(Phase.ANNOUNCED),
        "settled": standing(Phase.SETTLED),
        "moving, objects from 2023-11-14 22:15:00 UTC, can be settled from 2023-11-15 22:15:00 UTC": standing(
            Phase.MOVING
        ),
    }
    for text, one in said.items():
        assert printed(Told(NAME, one)) == (f"AUTH_a\tc\t{text}", "")
    moves = "moving, can be settled from 2023-11-15 22:15:00 UTC"
    assert printed(Told(NAME, standing(Phase.MOVING)), now_s=AT_S + 101)[0] == f"AUTH_a\tc\t{moves}"
    assert "objects from" in printed(Told(NAME, standing(Phase.MOVING, None)), now_s=AT_S + 101)[0]


def test_what_a_pass_has_done_is_printed_with_the_objects_that_could_not_be_moved() -> None:
    report = PassReport(rows=7, markers=1, moved=4, bytes=1_500_000, completed=1, failed={"x": "too few devices"})
    out, err = printed(Told(DatabaseName("AUTH_a", "\0versions\0c"), report=report))
    assert out == "AUTH_a\tversions of c\t7 objects, 4 moved (1.5 MB), 1 deletions completed, 1 failed"
    assert err == "AUTH_a\tversions of c\tnot moved: x: too few devices"
    assert printed(Told(NAME, problem="no")) == ("", "AUTH_a\tc\terror: no")
    assert printed(Told(NAME, report=PassReport(rows=3, left=2)))[0] == "AUTH_a\tc\t3 objects, 2 not moved yet"


def test_json_has_a_line_for_each_container() -> None:
    report = PassReport(rows=2, moved=1, bytes=5, failed={"x": "no"})
    out, _ = printed(Told(NAME, standing(Phase.MOVING), report), as_json=True)
    wanted: dict[str, Any] = {
        "account": "AUTH_a",
        "container": "c",
        "versions": False,
        "phase": "moving",
        "nextAt": AT_S + 100,
        "settlesAt": AT_S + 86_500,
        "rows": 2,
        "markers": 0,
        "left": 0,
        "moved": 1,
        "bytes": 5,
        "completed": 0,
        "failed": {"x": "no"},
        "unheard": {},
    }
    assert json.loads(out) == wanted
    hidden = json.loads(printed(Told(DatabaseName("a", "\0versions\0c"), Standing(None), problem="no"), True)[0])
    assert (hidden["container"], hidden["versions"], hidden["phase"], hidden["problem"]) == ("c", True, None, "no")
    end = json.loads(printed(Round(1, 2, 0, AT_S), as_json=True)[0])
    assert end == {"settled": 1, "copied": 2, "failed": 0, "settlesAt": AT_S}


def test_the_end_says_when_to_run_it_again() -> None:
    _, err = printed(Round(1, 2, 1, AT_S))
    assert "containers: 1 settled, 2 to be settled, 1 failed" in err
    assert "run the command again after 2023-11-14 22:13:20 UTC" in err
    assert "error: not everything could be moved" in err
