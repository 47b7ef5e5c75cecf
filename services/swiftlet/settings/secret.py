"""The cluster's secret, read from its file."""

from __future__ import annotations

from pathlib import Path

from swiftlet.errors import SettingsError

MIN_KEY_BYTES = 16
"""Shorter secrets could be guessed from one signature."""
_MAX_KEY_FILE_BYTES = 64 * 1024


def read_key_file(path: Path) -> bytes:
    """The file's content without surrounding white space; SettingsError when it is unreadable, short or huge."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_KEY_FILE_BYTES + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SettingsError(f"cluster.key_file: can't read {path}: {reason}") from error
    if len(content) > _MAX_KEY_FILE_BYTES:
        raise SettingsError(
            f"cluster.key_file: {path} is larger than {_MAX_KEY_FILE_BYTES} bytes; is it the right file?"
        )
    key = content.strip()
    if len(key) < MIN_KEY_BYTES:
        raise SettingsError(
            f"cluster.key_file: {path} holds {len(key)} bytes, at least {MIN_KEY_BYTES} are needed; "
            "for example the output of `openssl rand -hex 32`"
        )
    return key
