"""Folders of this machine and prefixes of containers, as the same thing: relative names with sizes.

Names of objects become paths below a folder. A name that would lead elsewhere (`..`, an absolute path) or that no file
can have is refused, never changed.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from swiftlet.client.client import AsyncClient
from swiftlet.client.commands.places import Remote
from swiftlet.client.commands.shared import tell
from swiftlet.client.errors import ClientError, LocalError, NotFound
from swiftlet.client.values import Entry

_DIRECTORY = "application/directory"
MTIME = "mtime"
"""Metadata item with a file's time of change in seconds, as python-swiftclient and rclone have it."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file below a folder."""

    relative: str
    path: Path
    size: int
    mtime_ns: int


class RefusedName(ClientError):
    """The name of an object or of a file that the other side can't have."""


def files_below(folder: Path) -> Iterator[LocalFile]:
    """Yield the files below a folder, by name; links to folders and what is no file are told and left out."""

    def fail(error: OSError) -> None:
        raise LocalError(f"{error.filename}: {error.strerror}") from error

    for base, folders, names in os.walk(folder, onerror=fail):
        folders.sort()
        for name in folders:
            if os.path.islink(os.path.join(base, name)):
                tell(f"{os.path.join(base, name)} is a link to a folder and is left out")
        for name in sorted(names):
            path = Path(base, name)
            if not path.is_file():
                tell(f"{path} is no file and is left out")
                continue
            status = path.stat()
            yield LocalFile(path.relative_to(folder).as_posix(), path, status.st_size, status.st_mtime_ns)


async def objects_below(client: AsyncClient, place: Remote) -> AsyncIterator[tuple[str, Entry]]:
    """Yield the objects below a place with their relative names, without those that stand for folders."""
    async for entry in client.list(place.container, place.below):
        relative = entry.name.removeprefix(place.below)
        if relative and not relative.endswith("/") and not entry.content_type.startswith(_DIRECTORY):
            yield relative, entry


def path_below(folder: Path, relative: str) -> Path:
    """Return the path for an object's relative name."""
    parts = relative.split("/")
    if any(part in {"", ".", ".."} for part in parts) or "\0" in relative:
        raise RefusedName(f"{relative!r} can't be the name of a file below {folder}")
    return folder.joinpath(*parts)


def name_for(prefix: str, relative: str) -> str:
    """Return the name of the object for a file's relative name."""
    try:
        relative.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RefusedName(f"{relative!r} is not valid UTF-8, which names of objects have to be") from error
    return prefix + relative


def mtime_metadata(mtime_ns: int) -> dict[str, str]:
    """Return a file's time of change as metadata."""
    return {MTIME: f"{mtime_ns // 10**9}.{mtime_ns % 10**9:09d}"}


def restore_mtime(path: Path, metadata: object) -> None:
    """Give a file the time of change that its object's metadata have, if they have one."""
    text = metadata.get(MTIME, "") if isinstance(metadata, dict) else ""
    seconds, _, fraction = text.partition(".")
    if seconds.isdigit() and (fraction.isdigit() or not fraction):
        moment = int(seconds) * 10**9 + int(fraction[:9].ljust(9, "0"))
        os.utime(path, ns=(moment, moment))


async def exists(client: AsyncClient, place: Remote) -> bool:
    """Whether there is an object, or without a name a container."""
    try:
        if place.name:
            await client.head(place.container, place.name)
        else:
            await client.container(place.container)
    except NotFound:
        return False
    return True
