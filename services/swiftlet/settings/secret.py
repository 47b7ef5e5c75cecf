"""The cluster's secrets: the form of their files, and fingerprints that tell keys apart without showing them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from swiftlet.errors import SettingsError

MIN_KEY_BYTES = 16
"""The least length of a key in bytes: shorter ones could be guessed from one signature."""
MAX_KEYS = 8
"""The largest number of keys in one file; a rotation needs two."""
_MAX_KEY_FILE_BYTES = 64 * 1024
_MAX_SUFFIX_FILE_BYTES = 4096
"""The largest size in bytes of the file with the hash suffix, which is one line."""
_ID_CHARS = 8


def read_key_file(path: Path) -> tuple[bytes, ...]:
    """Return the keys of a file as `parse_keys` finds them. Raises SettingsError also when the file is unreadable or
    huge.
    """
    return parse_keys(_content(path, "cluster.key_file", _MAX_KEY_FILE_BYTES), f"cluster.key_file: {path}")


def read_suffix_file(path: Path) -> bytes:
    """Return the suffix in a file, without the white space around it.

    Raises SettingsError when there is none, or more than a line. An empty or a wrong file must not count as a suffix:
    with another one no data are found.
    """
    what = "cluster.hash_path_suffix_file"
    suffix = _content(path, what, _MAX_SUFFIX_FILE_BYTES).strip()
    if not suffix:
        raise SettingsError(
            f"{what}: {path} is empty; put the cluster's suffix back, because with another one no stored "
            "object would be found"
        )
    if b"\n" in suffix:
        raise SettingsError(f"{what}: {path} has more than one line; is it the right file?")
    return suffix


def _content(path: Path, what: str, max_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SettingsError(f"{what}: can't read {path}: {reason}") from error
    if len(content) > max_bytes:
        raise SettingsError(f"{what}: {path} is larger than {max_bytes} bytes; is it the right file?")
    return content


def parse_keys(content: bytes, where: str) -> tuple[bytes, ...]:
    """Return the keys in a file's content, one per line: the first signs, all are accepted.

    White space around a key and empty lines don't count. Raises SettingsError when there is none, one is too short, or
    there are too many.
    """
    keys = tuple(dict.fromkeys(key for line in content.split(b"\n") if (key := line.strip())))
    if not keys:
        raise SettingsError(f"{where} holds no key; put one on a line, such as the output of `openssl rand -hex 32`")
    if len(keys) > MAX_KEYS:
        raise SettingsError(f"{where} holds {len(keys)} keys, at most {MAX_KEYS} are allowed; remove old ones")
    for number, key in enumerate(keys, 1):
        if len(key) < MIN_KEY_BYTES:
            raise SettingsError(
                f"{where}: key {number} holds {len(key)} bytes, at least {MIN_KEY_BYTES} are needed; "
                "for example the output of `openssl rand -hex 32`"
            )
    return keys


def suffix_id(suffix: bytes) -> str:
    """Return eight hex digits that identify a hash suffix without showing it; white space around it is ignored."""
    return hashlib.sha256(b"swiftlet hash suffix id" + suffix.strip()).hexdigest()[:_ID_CHARS]


def key_id(key: bytes) -> str:
    """Return eight hex digits that identify a key without showing it."""
    return hashlib.sha256(b"swiftlet key id" + key).hexdigest()[:_ID_CHARS]
