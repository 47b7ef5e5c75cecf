"""A text file that is read again when it has changed, with one wording for what can be wrong with it.

Fault model: the file may be gone, damaged or half-written at any look. What was made of it last stays in force, and the
next look reads it again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from swiftlet.errors import SettingsError


class WatchedFile:
    """A file, and the state of it that was last made use of."""

    def __init__(self, path: Path, what: str, max_bytes: int | None = None) -> None:
        """`what` names the kind of file in errors. A file of more than `max_bytes` is refused."""
        self._path = path
        self._what = what
        self._max_bytes = max_bytes
        self._seen: tuple[int, int, int] | None = None

    def reload(self, use: Callable[[bytes, str], None]) -> bool:
        """Call `use` with the content, as bytes and as text, if the file changed since `use` last returned; return
        whether it had changed. Raises SettingsError when the file can't be read, and what `use` raises.
        """
        limit = self._max_bytes
        try:
            stat = self._path.stat()
            seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if seen == self._seen:
                return False
            with self._path.open("rb") as file:
                content = file.read(-1 if limit is None else limit + 1)
        except OSError as error:
            raise SettingsError(f"can't read the {self._what} {self._path}: {error.strerror}") from error
        if limit is not None and len(content) > limit:
            raise SettingsError(f"the {self._what} {self._path} is larger than {limit} bytes; is it the right file?")
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise SettingsError(
                f"the {self._what} {self._path} is not valid UTF-8: {error.reason} at byte {error.start}"
            ) from error
        use(content, text)
        self._seen = seen
        return True
