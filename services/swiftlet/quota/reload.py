"""The quota file of a process, read again when it changes.

Fault model: the file may be gone, damaged or half-written at any check; the last good limits stay in force then.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from swiftlet.errors import SettingsError
from swiftlet.quota.limits import Quotas
from swiftlet.quota.parse import parse_quotas

MAX_FILE_BYTES = 16 * 1024 * 1024


class QuotaFile:
    """The limits in force, and the version of the file that they come from."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        """Read the file; without one there are no limits. Raises SettingsError when it can't be used."""
        self._path = None if path is None else Path(path)
        self._seen: tuple[int, int, int] | None = None
        self.quotas = Quotas()
        self.version: str | None = None
        """Eight hex digits of the file in use, by its content; None without a file."""
        self.reload()

    def reload(self) -> bool:
        """Read the file if it changed; return whether it had. SettingsError leaves the last good limits in force."""
        if self._path is None:
            return False
        try:
            stat = self._path.stat()
            seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if seen == self._seen:
                return False
            with self._path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise SettingsError(f"can't read the quota file {self._path}: {error.strerror}") from error
        if len(content) > MAX_FILE_BYTES:
            raise SettingsError(
                f"the quota file {self._path} is larger than {MAX_FILE_BYTES} bytes; is it the right file?"
            )
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise SettingsError(f"the quota file {self._path} is not valid UTF-8: {error}") from error
        self.quotas = parse_quotas(text, f"quota file {self._path}")
        self.version = hashlib.sha256(content).hexdigest()[:8]
        self._seen = seen
        return True
