"""Sealed copies on a device: the newest of a suffix wins, whatever else lies there, and a write is whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from swiftlet.servers.shared.sealed_keys import (
    DIRECTORY,
    MAX_BYTES,
    MAX_COPIES,
    SealedCopy,
    keep_copy,
    newest,
    read_copies,
)

AGE = b"age-encryption.org/v1\n"


def copy(generation: int, suffix: str = "00000001", text: bytes = b"sealed") -> SealedCopy:
    """What the operator could have made."""
    return SealedCopy(suffix, generation, AGE + text)


def names(device: Path) -> list[str]:
    """What lies on the device."""
    return sorted(os.listdir(device / DIRECTORY))


def test_a_newer_copy_takes_the_place_of_an_older_one(tmp_path: Path) -> None:
    keep_copy(tmp_path, copy(9))
    keep_copy(tmp_path, copy(10))
    assert names(tmp_path) == ["00000001-10.age"]
    assert read_copies(tmp_path / DIRECTORY) == [copy(10)]


def test_an_older_copy_and_another_of_the_same_generation_change_nothing(tmp_path: Path) -> None:
    keep_copy(tmp_path, copy(10))
    keep_copy(tmp_path, copy(9))
    keep_copy(tmp_path, copy(10, text=b"another"))
    assert read_copies(tmp_path / DIRECTORY) == [copy(10)]


def test_a_copy_with_another_suffix_takes_nothing_away(tmp_path: Path) -> None:
    keep_copy(tmp_path, copy(10))
    keep_copy(tmp_path, copy(11, suffix="ffffffff"))
    assert read_copies(tmp_path / DIRECTORY) == [copy(10), copy(11, suffix="ffffffff")]


def test_what_is_no_copy_is_passed_over(tmp_path: Path) -> None:
    keep_copy(tmp_path, copy(1))
    directory = tmp_path / DIRECTORY
    (directory / "00000001-7.age").write_bytes(b"not of the format")
    (directory / "00000001-6.age").write_bytes(b"age-encryption.org/v2\nof another format version")
    (directory / "00000001-8.age").write_bytes(AGE + bytes(MAX_BYTES))
    (directory / "00000001-9.age.tmp").write_bytes(AGE + b"torn")
    (directory / "00000001-9.agf").write_bytes(AGE)
    (directory / "readme").write_bytes(AGE)
    assert read_copies(directory) == [copy(1)]


def test_a_damaged_newest_copy_gives_way_to_the_one_before(tmp_path: Path) -> None:
    keep_copy(tmp_path, copy(1))
    (tmp_path / DIRECTORY / "00000001-2.age").write_bytes(b"")
    assert read_copies(tmp_path / DIRECTORY) == [copy(1)]
    keep_copy(tmp_path, copy(2))
    assert read_copies(tmp_path / DIRECTORY) == [copy(2)]


def test_no_more_suffixes_are_looked_at_than_the_limit(tmp_path: Path) -> None:
    for number in range(MAX_COPIES + 3):
        keep_copy(tmp_path, copy(number, suffix=f"{number:08x}"))
    found = read_copies(tmp_path / DIRECTORY)
    assert len(found) == MAX_COPIES
    assert copy(MAX_COPIES + 2, suffix=f"{MAX_COPIES + 2:08x}") in found


def test_a_device_that_is_not_there_is_not_made_up(tmp_path: Path) -> None:
    assert read_copies(tmp_path / "d0" / DIRECTORY) == []
    with pytest.raises(FileNotFoundError):
        keep_copy(tmp_path / "d0", copy(1))
    assert not (tmp_path / "d0").exists()


def test_a_write_is_synced_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    sync, rename = os.fsync, Path.replace

    def noting_sync(number: int) -> None:
        steps.append("sync")
        sync(number)

    def noting_rename(path: Path, target: Path) -> Path:
        steps.append("rename")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", noting_sync)
    monkeypatch.setattr(Path, "replace", noting_rename)
    keep_copy(tmp_path, copy(1))
    # The new directory's parent, the file, its name, and the directory.
    assert steps == ["sync", "sync", "rename", "sync"]


def test_of_several_devices_the_newest_counts() -> None:
    assert newest([copy(1), copy(3), copy(2), copy(1, suffix="ffffffff")]) == [copy(3), copy(1, suffix="ffffffff")]
