"""Sealed copies of the cluster's keys on a device: files that servers keep and hand out, and can't open.

The operator seals the keys in the age format to recipients that no service knows. A copy's file name has the
fingerprint of the hash suffix in it, and a generation. The newest copy of a suffix replaces older ones, and never that
of another suffix, because when a wrong suffix was used somewhere the right one must still be found.

Fault model: power may fail at any moment, which leaves the old copy or the new one; files in the directory may be
damaged, too large or have other names, and are then passed over. `docs/data-on-disk.md` specifies the files.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

DIRECTORY = ".sealed-keys"
"""The directory of the copies on a device; stores leave it alone."""
MAX_BYTES = 32 * 1024
"""The largest size in bytes of one copy."""
MAX_COPIES = 8
"""The largest number of hash suffixes of which copies on a device are read."""
_MAGIC = b"age-encryption.org/v1\n"
_NAME = re.compile(r"([0-9a-f]{8})-([0-9]{1,12})\.age")
_MAX_NAMES = 1000
"""The largest number of names in the directory that are read; others are ignored."""


@dataclass(frozen=True, slots=True)
class SealedCopy:
    """Sealed keys with the hash suffix of this fingerprint; of two copies the one of the higher generation is newer."""

    suffix_id: str
    generation: int
    content: bytes

    @property
    def name(self) -> str:
        """Return the name of its file."""
        return f"{self.suffix_id}-{self.generation}.age"


def read_copies(directory: Path) -> list[SealedCopy]:
    """Return the newest usable copy of each suffix in a directory; none when it does not exist. Blocks.

    Raises OSError when the directory can't be read.
    """
    try:
        names = os.listdir(directory)[:_MAX_NAMES]
    except FileNotFoundError:
        return []
    found: dict[str, SealedCopy] = {}
    for _, suffix_id, name in sorted(_parsed(names), reverse=True):
        if suffix_id in found or len(found) >= MAX_COPIES:
            continue
        content = _content(directory / name)
        if content is not None:
            found[suffix_id] = SealedCopy(suffix_id, int(name.removesuffix(".age").partition("-")[2]), content)
    return sorted(found.values(), key=lambda one: one.name)


def keep_copy(device: Path, copy: SealedCopy) -> None:
    """Store a copy durably on a device, unless it has the same or a newer one. Raises OSError. Blocks.

    The device's directory must exist, so that nothing is written to the file system below when it is not mounted.
    """
    directory = device / DIRECTORY
    held = next((one for one in read_copies(directory) if one.suffix_id == copy.suffix_id), None)
    if held is not None and held.generation >= copy.generation:
        return
    with contextlib.suppress(FileExistsError):
        directory.mkdir()
        _sync(device)
    _write(directory, copy)
    _remove_older(directory, copy)


def newest(copies: Iterable[SealedCopy]) -> list[SealedCopy]:
    """Return the newest copy for each suffix."""
    found: dict[str, SealedCopy] = {}
    for copy in copies:
        held = found.get(copy.suffix_id)
        if held is None or held.generation < copy.generation:
            found[copy.suffix_id] = copy
    return sorted(found.values(), key=lambda one: one.name)


def _parsed(names: Iterable[str]) -> list[tuple[int, str, str]]:
    """Return generation, suffix and name for all names that are those of copies."""
    matches = (_NAME.fullmatch(name) for name in names)
    return [(int(match[2]), match[1], match[0]) for match in matches if match]


def _content(path: Path) -> bytes | None:
    """Return the contents of the file; None when it is not a sealed copy."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    return content if content.startswith(_MAGIC) and len(content) <= MAX_BYTES else None


def _write(directory: Path, copy: SealedCopy) -> None:
    temporary = directory / f"{copy.name}.tmp"
    with temporary.open("wb") as file:
        file.write(copy.content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(directory / copy.name)
    _sync(directory)


def _remove_older(directory: Path, copy: SealedCopy) -> None:
    """Remove the copies that a newer one has replaced.

    A loss of power may bring one back, which does no harm as it is older.
    """
    for generation, suffix_id, name in _parsed(os.listdir(directory)):
        if suffix_id == copy.suffix_id and generation < copy.generation:
            (directory / name).unlink(missing_ok=True)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
