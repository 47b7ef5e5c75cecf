"""The quota file of a process, read again when it changes.

Fault model: the file may be gone, damaged or half-written at any check; the last good limits stay in force then.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from swiftlet.quota.limits import Quotas
from swiftlet.quota.parse import parse_quotas
from swiftlet.watched_file import WatchedFile

MAX_FILE_BYTES = 16 * 1024 * 1024


class QuotaFile:
    """The limits in force, and the version of the file that they come from."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        """Read the file; without one there are no limits. Raises SettingsError when it can't be used."""
        self._path = path
        self._file = None if path is None else WatchedFile(Path(path), "quota file", MAX_FILE_BYTES)
        self.quotas = Quotas()
        self.version: str | None = None
        """Eight hex digits of the file in use, by its content; None without a file."""
        self.reload()

    def reload(self) -> bool:
        """Read the file if it changed; return whether it had. SettingsError leaves the last good limits in force."""
        return self._file is not None and self._file.reload(self._use)

    def _use(self, content: bytes, text: str) -> None:
        self.quotas = parse_quotas(text, f"quota file {self._path}")
        self.version = hashlib.sha256(content).hexdigest()[:8]
