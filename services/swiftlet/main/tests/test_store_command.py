"""`swiftlet store`: what it prints, what it mends, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swiftlet.main.commands.cli import run, swiftlet
from swiftlet.model import ObjectKey
from swiftlet.store.native import NativeStore
from swiftlet.testing.store.conformance import NAME, at, key_of, post, put, some_bytes
from swiftlet.testing.store.faulty_native import find_put, flip_in_place

COMMANDS = ("check", "dump", "stats", "rebuild-index")
LARGE = some_bytes(2_500_000)
ELSEWHERE = ObjectKey(3, 9, key_of(4).digest)


@pytest.fixture
def device(tmp_path: Path) -> Path:
    store = NativeStore(tmp_path, volume_bytes=8 << 20)
    put(store, key_of(1), 1, b"small", color="blue")
    post(store, key_of(1), 2, 2, color="red")
    put(store, key_of(2), 1, LARGE)
    put(store, key_of(3), 1, b"gone")
    store.delete(key_of(3), at(2), NAME)
    put(store, ELSEWHERE, 1, b"elsewhere")
    store.close()
    return tmp_path


def files_below(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def opened(device: Path) -> Iterator[NativeStore]:
    store = NativeStore(device)
    yield store
    store.close()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_device_in_use_is_refused(
    device: Path, opened: NativeStore, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_below(device)
    assert run(swiftlet, ["store", command, str(device)]) == 1
    assert "in use by process" in capsys.readouterr().err
    assert files_below(device) == before


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("what", ["empty", "missing"])
def test_what_is_no_native_store_is_refused_and_left_alone(
    tmp_path: Path, command: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    device = tmp_path / "missing" if what == "missing" else tmp_path
    before = files_below(tmp_path)
    assert run(swiftlet, ["store", command, str(device)]) == 1
    expected = {"empty": "holds no store", "missing": "is not a directory"}
    assert expected[what] in capsys.readouterr().err
    assert files_below(tmp_path) == before


def test_check_of_a_sound_device(device: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options in ([], ["--data"]):
        assert run(swiftlet, ["store", "check", *options, str(device)]) == 0
        assert capsys.readouterr().out == "4 objects and tombstones, no problems\n"


def test_check_finds_damaged_data_and_sets_it_aside(device: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, _, data = find_put(device, key_of(1))
    flip_in_place(path, data)
    assert run(swiftlet, ["store", "check", "--data", str(device)]) == 1
    shown = capsys.readouterr().out
    assert "policy 0 partition 7: " in shown
    assert "moved to quarantine" in shown
    assert "1 problems" in shown
    assert len(list((device / "quarantined").iterdir())) == 1
    assert run(swiftlet, ["store", "check", "--data", str(device)]) == 0
    assert capsys.readouterr().out == "3 objects and tombstones, no problems\n"


def dumped(device: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, Any]]:
    assert run(swiftlet, ["store", "dump", str(device), *options]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_dump(device: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {line["digest"]: line for line in dumped(device, capsys)}
    assert set(found) == {key.hex for key in (key_of(1), key_of(2), key_of(3), ELSEWHERE)}
    small = found[key_of(1).hex]
    assert (small["policy"], small["partition"], small["kind"], small["size"]) == (0, 7, "data", 5)
    assert (small["name"], small["metadata"]) == (NAME, {"color": "red"})
    assert (small["timestamp"], small["meta_timestamp"]) == (at(1).internal, at(2).internal)
    assert found[key_of(2).hex]["size"] == len(LARGE)
    assert found[key_of(3).hex]["kind"] == "tombstone"
    assert [line["digest"] for line in dumped(device, capsys, "--policy", "3")] == [ELSEWHERE.hex]
    assert [line["digest"] for line in dumped(device, capsys, "--partition", "9")] == [ELSEWHERE.hex]
    assert len(dumped(device, capsys, "--policy", "0", "--partition", "7")) == 3


def test_dump_names_what_is_damaged(device: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, metadata, _ = find_put(device, key_of(1))
    flip_in_place(path, metadata + 8)
    found = {line["digest"]: line for line in dumped(device, capsys)}
    assert "error" in found[key_of(1).hex]
    assert len(found) == 4


def test_stats(device: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(swiftlet, ["store", "stats", str(device)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["objects_and_tombstones"], shown["quarantined"]) == (4, 0)
    assert shown["start"]["checkpoint"] == 1
    (volume,) = shown["volumes"]
    assert 0 < volume["held"] < volume["bytes"]


def test_rebuild_index(device: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (device / "index").iterdir():
        path.write_bytes(b"x" * 100)
    assert run(swiftlet, ["store", "rebuild-index", str(device)]) == 0
    assert "4 objects and tombstones found in" in capsys.readouterr().out
    assert run(swiftlet, ["store", "stats", str(device)]) == 0
    start = json.loads(capsys.readouterr().out)["start"]
    assert (start["checkpoint"], start["records"]) == (1, 0)
    assert run(swiftlet, ["store", "check", "--data", str(device)]) == 0
