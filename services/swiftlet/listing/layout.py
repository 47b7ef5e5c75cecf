"""The paths of listing databases on a device, and the lock that makes one process the owner of the device."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from swiftlet.errors import DeviceLocked
from swiftlet.model import SUFFIX_CHARS, DatabaseId, DatabaseKind


def database_path(root: Path, id: DatabaseId) -> Path:
    """Return the path of the database's file."""
    name = id.digest.hex()
    # One step, as a device's databases are all looked for when it starts.
    return root.joinpath(id.kind.value, str(id.partition), name[-SUFFIX_CHARS:], name, f"{name}.db")


def own(root: Path) -> int:
    """Lock the directory, which is created if it does not exist; return the descriptor that holds the lock.

    Raises DeviceLocked when another process holds it.
    """
    root.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(root / "listing.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise DeviceLocked(f"{root} is in use by another process; one process owns a device") from error
    return descriptor


def entries(directory: Path | str) -> list[str]:
    """Return the names in a directory; none when it does not exist."""
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def databases_in(root: Path, kind: DatabaseKind, partition: int) -> list[DatabaseId]:
    """Return the databases in a partition, by digest."""
    home = str(root.joinpath(kind.value, str(partition)))
    found = (
        DatabaseId(kind, partition, bytes.fromhex(name))
        for suffix in entries(home)
        for name in entries(f"{home}/{suffix}")
        if os.path.exists(f"{home}/{suffix}/{name}/{name}.db")
    )
    return sorted(found, key=lambda id: id.digest)
