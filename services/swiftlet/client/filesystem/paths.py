"""Paths, what fsspec calls infos, and errors: between the client's words and those of files."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from swiftlet.client.errors import ClientError, Conflict, Forbidden, NotFound, PreconditionFailed, Unauthorized
from swiftlet.client.values import ALWAYS, Conditions, Entry, ObjectInfo

_DIRECTORY = "application/directory"
MISSING = Conditions(if_none_match="*")
"""There must be no object."""


def split(path: str) -> tuple[str, str]:
    """Return the container and the name in a path; the name is empty of a container, both of the root."""
    container, _, name = path.partition("/")
    return container, name


def file_of(path: str) -> tuple[str, str]:
    """Return the container and the name of what can only be a file."""
    container, name = split(path)
    if not name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    return container, name


def folder(name: str) -> dict[str, Any]:
    """Return the info of a folder."""
    return {"name": name, "size": 0, "type": "directory"}


def known_file(path: str, info: ObjectInfo) -> dict[str, Any]:
    """Return the info of an object as HEAD tells it; that of a folder if it stands for one."""
    if info.content_type.startswith(_DIRECTORY):
        return folder(path)
    return {
        "name": path,
        "size": info.size,
        "type": "file",
        "etag": info.etag,
        "content_type": info.content_type,
        "last_modified": info.last_modified,
        "version_id": info.version_id,
    }


def known_entry(container: str, entry: Entry) -> dict[str, Any]:
    """Return the info of an object or a prefix as a listing tells it."""
    path = f"{container}/{entry.name}"
    if entry.is_prefix or entry.name.endswith("/") or entry.content_type.startswith(_DIRECTORY):
        return folder(path.rstrip("/"))
    return {
        "name": path,
        "size": entry.size,
        "type": "file",
        "etag": entry.etag,
        "content_type": entry.content_type,
        "last_modified": entry.last_modified,
        "version_id": entry.version_id,
    }


def unique(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return entries by name, each once: a folder may be told as a prefix and as an object that stands for it."""
    by_name = {one["name"]: one for one in reversed(found)}
    return [by_name[name] for name in sorted(by_name)]


def add_below(
    found: dict[str, dict[str, Any]], path: str, container: str, entry: Entry, maxdepth: int | None, withdirs: bool
) -> None:
    """Add an object below a path to what was found, with the folders between them if they are wanted."""
    made = known_entry(container, entry)
    parts = made["name"].removeprefix(path).strip("/").split("/")
    if withdirs:
        found.setdefault(path, folder(path))
        for depth in range(1, len(parts)):
            if maxdepth is None or depth <= maxdepth:
                between = f"{path}/{'/'.join(parts[:depth])}"
                found.setdefault(between, folder(between))
    if (made["type"] == "file" or withdirs) and (maxdepth is None or len(parts) <= maxdepth):
        found[made["name"]] = made


def conditions_of(mode: str) -> Conditions:
    """Return what fsspec's mode of a write (`create`, `overwrite`) asks for."""
    return MISSING if mode == "create" else ALWAYS


def known_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of fsspec's options the client knows."""
    return {name: options[name] for name in ("content_type", "metadata", "headers") if options.get(name) is not None}


def progress_of(callback: Any) -> Any:
    """Return a function for the client that reports to one of fsspec's callbacks."""

    def report(moved: int, total: int | None) -> None:
        if total is not None and callback.size != total:
            callback.set_size(total)
        callback.absolute_update(moved)

    return report


@contextmanager
def os_errors(path: str) -> Iterator[None]:
    """Turn the client's errors into those of the system, as users of files expect them."""
    try:
        yield
    except NotFound as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
    except PreconditionFailed as error:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
    except (Forbidden, Unauthorized) as error:
        raise PermissionError(errno.EACCES, str(error), path) from error
    except Conflict as error:
        raise OSError(errno.ENOTEMPTY, str(error), path) from error
    except ClientError as error:
        raise OSError(errno.EIO, str(error), path) from error
