"""The files of one ring in a directory: `<ring>.ring`, or the chunks `<ring>.ring.<i>` that ConfigMaps hold.

Kubernetes shows ConfigMaps as symbolic links through one link that is replaced when any of them changes, so every check
follows the links. It is replaced for all files at once, but the ConfigMaps of one ring are not written at once: a set
of chunks may be half-updated for a minute, which their digest shows.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from swiftlet.ring import codec
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import RingFormatError

Signature = tuple[tuple[str, int, int, int], ...]
"""Name, modification time in ns, size and inode of every file, of which one changes with the files."""


class RingFiles:
    """The files that one ring is read from."""

    def __init__(self, directory: Path, name: str) -> None:
        """The ring `name` in `directory`; nothing is read yet."""
        self._directory = directory
        self._file_name = f"{name}.ring"

    def __str__(self) -> str:
        return str(self._directory / self._file_name)

    def signature(self) -> Signature:
        """Return the state of the files. Raises OSError when there are none."""
        return tuple(_signature(path) for path in self._paths())

    def load(self) -> Ring:
        """Return the ring.

        Raises OSError when a file can't be read, RingFormatError for damaged, mixed and incomplete ones.
        """
        paths = self._paths()
        whole = self._directory / self._file_name
        if whole not in paths:
            return codec.join([path.read_bytes() for path in paths])
        if len(paths) > 1:
            raise RingFormatError(
                f"the directory holds both the ring file and chunks of it ({paths[1].name}); remove one of the two"
            )
        return codec.load(whole)

    def _paths(self) -> list[Path]:
        names = [name for name in os.listdir(self._directory) if self._is_ours(name)]
        if not names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        return [self._directory / name for name in sorted(names)]

    def _is_ours(self, name: str) -> bool:
        start, dot, number = name.partition(f"{self._file_name}.")
        return name == self._file_name or (not start and bool(dot) and number.isdecimal())


def _signature(path: Path) -> tuple[str, int, int, int]:
    stat = path.stat()
    return path.name, stat.st_mtime_ns, stat.st_size, stat.st_ino
