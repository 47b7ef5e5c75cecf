"""How many bytes of disk the files below a folder take, and how many of those a store has only reserved.

Our store reserves space at the end of the volume that it writes, 64 MiB at most (`native/crates/store/src/volume.rs`),
and gives back what is left of it once the volume is full, or when the store is opened again. How much that is depends
on how full the volume happens to be, so it counts apart. What is written counts, whatever it is: packs, tombstones,
indexes, records that are dead and not compacted yet, and up to 1 MiB of zeros that the volume was given ahead.
"""

from __future__ import annotations

import errno
import math
import os
from dataclasses import dataclass
from pathlib import Path

_SECTOR, _BLOCK = 512, 4096
_VOLUMES = "volumes"
"""The folder of a device with files of which some have reserved space."""


@dataclass(frozen=True)
class Space:
    """How many bytes of disk files take."""

    stored: int = 0
    """Bytes that were written."""
    reserved: int = 0
    """Bytes that files have, and to which nothing was written."""

    def __add__(self, other: Space) -> Space:
        return Space(self.stored + other.stored, self.reserved + other.reserved)


def space_of(path: Path) -> Space:
    """Return what the files below a folder take; those that go meanwhile count as nothing."""
    found = Space()
    for folder, _, files in os.walk(path):
        for name in files:
            try:
                found += (_of_volume if Path(folder).name == _VOLUMES else _of_file)(Path(folder, name))
            except FileNotFoundError:
                continue
    return found


def _of_file(path: Path) -> Space:
    return Space(path.stat().st_blocks * _SECTOR)


def _of_volume(path: Path) -> Space:
    """Tell what was written from what was not: a file system knows that of blocks that it has allocated."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        taken = os.fstat(descriptor).st_blocks * _SECTOR
        stored = min(taken, _written(descriptor))
    finally:
        os.close(descriptor)
    return Space(stored, taken - stored)


def _written(descriptor: int) -> int:
    size, at, found = os.fstat(descriptor).st_size, 0, 0
    while at < size:
        try:
            begin = os.lseek(descriptor, at, os.SEEK_DATA)
            at = os.lseek(descriptor, begin, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            # Nothing was written behind this, or the store has cut the file meanwhile.
            break
        # The file may end within a block, which it takes all the same.
        found += math.ceil(at / _BLOCK) * _BLOCK - begin
    return found
