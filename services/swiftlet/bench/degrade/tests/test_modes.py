"""Files of modes: what is refused, by which field, and those that ship."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from swiftlet.bench.degrade.modes import MAX_MODES, mode_of, read_modes, shipped
from swiftlet.bench.errors import BenchError

MODE = {"name": "one", "break": "false", "mend": "true"}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("- one", "must hold `modes:`, a list; `swiftlet bench modes kubernetes` has an example"),
        ("modes: [", "is not valid YAML"),
        ({"modes": []}, "modes needs at least one mode"),
        ({"modes": [MODE] * 2}, "there are several of one"),
        ({"modes": [{**MODE, "name": f"m{number}"} for number in range(MAX_MODES + 1)]}, "modes: "),
        ({"modes": [{"name": "one", "mend": "true"}]}, "modes[0].break: missing"),
        ({"modes": [{"name": "one", "break": "true"}]}, "needs either mend, the command that puts it right"),
        ({"modes": [{**MODE, "task": True}]}, "needs either mend, the command that puts it right"),
        ({"modes": [{"name": "one", "break": "true", "task": True, "whole": "true"}]}, "whole is for a mode with mend"),
        ({"modes": [{**MODE, "seconds": 0}]}, "modes[0].seconds: 0"),
        ({"modes": [{**MODE, "seconds": "soon"}]}, "modes[0].seconds: 'soon'"),
        ({"modes": [{**MODE, "within_s": -1}]}, "modes[0].within_s: -1"),
        ({"modes": [{**MODE, "name": "a/b"}]}, "modes[0].name: 'a/b'"),
        ({"modes": [{**MODE, "break": ""}]}, "modes[0].break: ''"),
        ({"modes": [{**MODE, "mends": "true"}]}, "did you mean 'modes[0].mend'?"),
        ({"modes": ["one"]}, "modes[0]: 'one'"),
    ],
)
def test_wrong_files_are_refused_by_field(document: Any, message: str, tmp_path: Path) -> None:
    file = tmp_path / "modes.yaml"
    file.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    with pytest.raises(BenchError) as refused:
        read_modes(str(file))
    assert message in str(refused.value)


def test_files_that_cant_be_read_and_modes_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="there is no file nothing; files of modes that ship are: kubernetes, local"):
        read_modes("nothing")
    with pytest.raises(BenchError, match="can't be read"):
        read_modes(str(tmp_path))
    with pytest.raises(BenchError, match="--only pots: kubernetes has no such mode; it has pod, node"):
        read_modes("kubernetes", ["pots"])
    (tmp_path / "large").write_text(" " * (1 << 20) + " ")
    with pytest.raises(BenchError, match="is too large for a file of modes"):
        read_modes(str(tmp_path / "large"))


def test_a_file_says_what_a_command_line_leaves_open(tmp_path: Path) -> None:
    file = tmp_path / "modes.yaml"
    file.write_text(yaml.safe_dump({"modes": [{**MODE, "seconds": 5}, {**MODE, "name": "two"}]}))
    first, second = read_modes(str(file), seconds=7.0, within_s=9.0)
    assert (first.seconds, second.seconds) == (5.0, 7.0)
    assert (first.within_s, second.within_s) == (9.0, 9.0)
    assert [mode.name for mode in read_modes(str(file), ["two"])] == ["two"]
    with pytest.raises(BenchError, match="break: '' in the command line"):
        mode_of({"name": "one", "break": "", "mend": "true"})


@pytest.mark.parametrize("name", shipped())
def test_what_ships_is_used_as_it_is_and_understood_by_a_shell(name: str) -> None:
    for mode in read_modes(name):
        assert mode.about
        for command in filter(None, (mode.breaks, mode.mend, mode.whole)):
            done = subprocess.run(["/bin/sh", "-n", "-c", command], capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, "")
