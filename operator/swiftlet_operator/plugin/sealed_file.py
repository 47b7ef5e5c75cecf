"""A backup's file: encrypted to recipients or with a passphrase, written as a whole or not at all, and opened again."""

from __future__ import annotations

import getpass
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from swiftlet.formats import other_version
from swiftlet_operator.plugin.archive import MAX_FILE_BYTES, Backup, BackupError, pack, unpack
from swiftlet_operator.problems import SealError
from swiftlet_operator.sealing import (
    MAGIC,
    decrypt,
    decrypt_with_passphrase,
    encrypt,
    encrypt_with_passphrase,
    parse_identities,
)

MIN_PASSPHRASE_CHARS = 12
MAX_SECRET_BYTES = 64 * 1024
"""The largest size in bytes of a file with a passphrase or identities."""
_WITH_PASSPHRASE = b"-> scrypt "
_AGE_VERSION = re.compile(rb"age-encryption\.org/v([0-9]{1,5})\n")
_AS_TEXT = b"-----BEGIN AGE ENCRYPTED FILE-----"


def write(backup: Backup, path: Path, recipients: Sequence[str], passphrase_file: Path | None) -> None:
    """Encrypt a backup into a new file. Raises BackupError, and then there is no file."""
    if path.exists():
        raise BackupError(f"{path} is there already; name another file")
    if recipients and passphrase_file is not None:
        raise BackupError("give --recipient or --passphrase-file, not both")
    content = pack(backup)
    try:
        if recipients:
            sealed = encrypt(content, recipients)
        else:
            sealed = encrypt_with_passphrase(content, _passphrase(passphrase_file, new=True))
    except SealError as error:
        raise BackupError(str(error)) from error
    aside = path.with_name(f".{path.name}.part")
    try:
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(sealed)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise BackupError(f"{path} can't be written: {error.strerror}") from error


def read(path: Path, identity_file: Path | None, passphrase_file: Path | None) -> Backup:
    """Open and check a backup. Raises BackupError."""
    sealed = _content(path, MAX_FILE_BYTES)
    if sealed.startswith(_AS_TEXT):
        raise BackupError(f"{path} is armored text; give the file as backup wrote it")
    if (found := _AGE_VERSION.match(sealed)) and not sealed.startswith(MAGIC):
        fix = "use the plugin of the release that made it"
        raise BackupError(other_version(f"{path}, in the age format,", int(found[1]), 1, fix))
    if not sealed.startswith(MAGIC):
        raise BackupError(f"{path} is no backup of Swiftlet: it is not in the age format")
    try:
        if sealed[len(MAGIC) :].startswith(_WITH_PASSPHRASE):
            content = decrypt_with_passphrase(sealed, _passphrase(passphrase_file, new=False))
        elif identity_file is None:
            raise BackupError(f"{path} is sealed to recipients: give --identity FILE with the key of one of them")
        else:
            content = decrypt(sealed, parse_identities(_content(identity_file, MAX_SECRET_BYTES).decode()))
        return unpack(content)
    except UnicodeDecodeError as error:
        raise BackupError(f"{identity_file} is no file with identities of age") from error
    except SealError as error:
        raise BackupError(f"{path}: {error}") from error
    except BackupError as error:
        raise BackupError(f"{path}: {error}") from error


def _passphrase(path: Path | None, *, new: bool) -> str:
    """Return the passphrase from the first line of a file, or from the terminal."""
    if path is not None:
        text = _content(path, MAX_SECRET_BYTES).decode("utf-8", "replace").partition("\n")[0].rstrip("\r")
    elif sys.stdin.isatty():
        text = getpass.getpass("Passphrase of the backup: ")
        if new and getpass.getpass("The same again: ") != text:
            raise BackupError("the two passphrases differ")
    else:
        more = "--recipient age1... or " if new else ""
        raise BackupError(f"there is no terminal to ask for a passphrase; give {more}--passphrase-file FILE")
    if new and len(text) < MIN_PASSPHRASE_CHARS:
        raise BackupError(f"the passphrase is shorter than {MIN_PASSPHRASE_CHARS} characters")
    return text


def _content(path: Path, most_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise BackupError(f"{path} can't be read: {error.strerror}") from error
    if len(content) > most_bytes:
        raise BackupError(f"{path} is larger than {most_bytes} bytes; is it the right file?")
    return content
