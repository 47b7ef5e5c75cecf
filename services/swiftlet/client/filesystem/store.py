"""The file system: what there is, and reading, writing, copying and deleting it."""

from __future__ import annotations

import asyncio
import errno
import os
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Any

import fsspec.asyn
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.core import has_magic
from fsspec.utils import stringify_path

from swiftlet.client.client import AsyncClient
from swiftlet.client.concurrency import run_all
from swiftlet.client.credentials import find_credentials
from swiftlet.client.errors import ConfigurationError, NotFound, PreconditionFailed, RangeNotSatisfiable
from swiftlet.client.filesystem.files import SwiftletFile
from swiftlet.client.filesystem.paths import (
    add_below,
    conditions_of,
    file_of,
    folder,
    known_entry,
    known_file,
    known_options,
    os_errors,
    progress_of,
    split,
    unique,
)
from swiftlet.client.surroundings import find_options
from swiftlet.client.values import ALWAYS, Conditions, Entry, Span

_VARIABLES = ("st_", "os_", "swiftlet_credentials")
_CLOSE_WITHIN_S = 2.0
_seen: ContextVar[dict[str, dict[str, Any]] | None] = ContextVar("_seen", default=None)
"""What listings of the bulk operation that is under way have told, by path: it is not asked for again."""


class SwiftletFileSystem(fsspec.asyn.AsyncFileSystem):
    """An account of a store."""

    protocol = "swiftlet"
    root_marker = ""
    cachable = True
    _loop: asyncio.AbstractEventLoop | None
    _pid: int

    def __init__(
        self,
        *,
        client_options: Mapping[str, Any] | None = None,
        asynchronous: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> None:
        """Take credentials from the options, or find them in the environment."""
        super().__init__(asynchronous=asynchronous, loop=loop, batch_size=batch_size, **options)
        given = {name: str(value) for name, value in options.items() if name.startswith(_VARIABLES)}
        known = {*given, "skip_instance_cache", "use_listings_cache", "listings_expiry_time", "max_paths"}
        if unknown := sorted(options.keys() - known):
            raise ConfigurationError(f"unknown options: {', '.join(unknown)}; give st_auth, st_user, st_key or os_*")
        found = find_credentials({name.upper(): value for name, value in given.items()} if given else None)
        # Who writes a file expects to see it in the next listing.
        self.client = AsyncClient(found, find_options(**{"write_directly": False, **(client_options or {})}))
        """The client that is used."""
        if not asynchronous:
            weakref.finalize(self, _close, self._loop, self._pid, self.client)

    @property
    def loop(self) -> Any:
        """The event loop of fsspec; in a process made by fork it is that process's own."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._loop = None if self.asynchronous else fsspec.asyn.get_loop()
        return self._loop

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = stringify_path(path)
        return text.removeprefix("swiftlet://").removeprefix("swiftlet::").strip("/") if text.strip("/") else ""

    # --- what there is ---

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if (known := (_seen.get() or {}).get(path)) is not None:
            return known
        container, name = split(path)
        with os_errors(path):
            if not container:
                return folder("")
            if not name:
                counted = await self.client.container(container)
                return {**folder(container), "objects": counted.objects, "bytes": counted.size}
            try:
                return known_file(path, await self.client.head(container, name))
            except NotFound:
                async for _entry in self.client.list(container, f"{name}/", limit=1):
                    return folder(path)
                raise

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        container, name = split(path)
        with os_errors(path):
            if not container:
                found = [folder(one.name) async for one in self.client.containers()]
            else:
                below = f"{name}/" if name else ""
                entries = self.client.list(container, below, delimiter="/")
                found = [known_entry(container, entry) async for entry in entries if entry.name != below]
        if not found and name:
            # A file, or nothing.
            known = await self._info(path)
            found = [known] if known["type"] == "file" else []
        _remember(found)
        return unique(found) if detail else sorted({one["name"] for one in found})

    async def _find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **options: Any
    ) -> Any:
        path = self._strip_protocol(path)
        container, name = split(path)
        if not container:
            return await super()._find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **options)
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        if (known := (_seen.get() or {}).get(path)) is not None and known["type"] == "file":
            return {path: known} if detail else [path]
        found: dict[str, dict[str, Any]] = {}
        below = f"{name}/" if name else ""
        try:
            with os_errors(path):
                async for entry in self.client.list(container, below + str(options.get("prefix", ""))):
                    add_below(found, path, container, entry, maxdepth, withdirs)
                if not found and name:
                    known = await self._info(path)
                    if known["type"] == "file":
                        found[path] = known
        except FileNotFoundError:
            found = {}
        _remember(found.values())
        names = sorted(found)
        return {one: found[one] for one in names} if detail else names

    async def _modified(self, path: str) -> datetime:
        found: datetime = (await self._info(path))["last_modified"]
        return found

    def ukey(self, path: str) -> str:
        """Return the ETag of an object: another one is another version."""
        return str(self.info(path)["etag"])

    checksum = ukey

    # --- many at a time ---

    async def _copy(self, *arguments: Any, **options: Any) -> Any:
        with _remembering():
            return await super()._copy(*arguments, **options)

    async def _get(self, *arguments: Any, **options: Any) -> Any:
        with _remembering():
            return await super()._get(*arguments, **options)

    async def _glob(self, path: str, maxdepth: int | None = None, **options: Any) -> Any:
        with _remembering():
            return await super()._glob(path, maxdepth=maxdepth, **options)

    # --- reading ---

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        path = self._strip_protocol(path)
        container, name = file_of(path)
        etag = options.get("etag")
        same = Conditions(if_match=etag) if etag else ALWAYS
        with os_errors(path):
            if (end is not None and end < 0) or (start is not None and start < 0 and end is not None):
                size = (await self.client.head(container, name)).size or 0
                start = max(0, size + start) if start is not None and start < 0 else start
                end = size + end if end is not None and end < 0 else end
            if end is not None and end <= (start or 0):
                return b""
            span = None if start is None and end is None else Span(start or 0, end)
            try:
                return (await self.client.get(container, name, span=span, conditions=same)).data
            except RangeNotSatisfiable:
                return b""
            except PreconditionFailed as error:
                raise OSError(errno.ESTALE, "another version has been stored since it was opened", path) from error

    async def _get_file(self, rpath: str, lpath: str, callback: Any = DEFAULT_CALLBACK, **_: Any) -> None:
        rpath = self._strip_protocol(rpath)
        if await asyncio.to_thread(os.path.isdir, lpath) or await self._isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        with os_errors(rpath):
            await self.client.download(*file_of(rpath), lpath, progress=progress_of(callback))

    # --- writing ---

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        path = self._strip_protocol(path)
        with os_errors(path):
            await self.client.put(*file_of(path), value, conditions=conditions_of(mode), **known_options(options))

    async def _put_file(
        self, lpath: str, rpath: str, mode: str = "overwrite", callback: Any = DEFAULT_CALLBACK, **options: Any
    ) -> None:
        rpath = self._strip_protocol(rpath)
        if await asyncio.to_thread(os.path.isdir, lpath):
            await self._makedirs(rpath, exist_ok=True)
            return
        with os_errors(rpath):
            await self.client.put(
                *file_of(rpath),
                Path(lpath),
                conditions=conditions_of(mode),
                progress=progress_of(callback),
                **known_options(options),
            )

    async def _cp_file(self, path1: str, path2: str, **_: Any) -> None:
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if (_seen.get() or {}).get(path1, {}).get("type") == "directory":
            return
        try:
            with os_errors(path1):
                await self.client.copy(file_of(path1), file_of(path2))
        except FileNotFoundError:
            if not await self._isdir(path1):
                raise

    async def _rm_file(self, path: str, **_: Any) -> None:
        path = self._strip_protocol(path)
        with os_errors(path):
            await self.client.delete(*file_of(path), with_segments=True)

    async def _rm(
        self, path: Any, recursive: bool = False, batch_size: int | None = None, maxdepth: int | None = None, **_: Any
    ) -> None:
        given = path if isinstance(path, list) else [path]
        plain = [self._strip_protocol(one) for one in given if not has_magic(one)]
        magic = [one for one in given if has_magic(one)]
        found = [*plain, *(await self._expand_path(magic) if magic else [])]
        for one in found:
            container, name = split(one)
            if not recursive:
                await self._rm_one(one)
                continue
            files = await self._below(one, maxdepth)
            if not files and name:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), one)
            with os_errors(one):
                await run_all(files, self._delete, batch_size or self.batch_size or self.client.options.concurrency)
            if not name and maxdepth is None:
                await self._rmdir(container)

    async def _rm_one(self, path: str) -> None:
        try:
            await self._rm_file(path)
        except FileNotFoundError:
            if await self._isdir(path):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path) from None
            raise

    async def _below(self, path: str, maxdepth: int | None) -> list[tuple[str, Entry]]:
        """Return the objects at and below a path, those that stand for folders too, with their containers."""
        container, name = split(path)
        found = []
        with os_errors(path):
            async for entry in self.client.list(container, name):
                relative = entry.name.removeprefix(name).strip("/") if name else entry.name
                is_below = not name or entry.name == name or entry.name.startswith(f"{name}/")
                if is_below and (maxdepth is None or relative.count("/") < maxdepth):
                    found.append((container, entry))
        return found

    async def _delete(self, found: tuple[str, Entry]) -> None:
        container, entry = found
        with suppress(NotFound):
            await self.client.delete(container, entry.name, with_segments=entry.is_static_large)

    async def _mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        path = self._strip_protocol(path)
        container, name = split(path)
        if not container:
            return
        with os_errors(path):
            try:
                await self.client.container(container)
            except NotFound:
                if name and not create_parents:
                    raise
                await self.client.create_container(container)
            else:
                if not name:
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        try:
            await self._mkdir(path, create_parents=True)
        except FileExistsError:
            if not exist_ok:
                raise

    async def _rmdir(self, path: str) -> None:
        path = self._strip_protocol(path)
        container, name = split(path)
        with os_errors(path):
            if not name:
                await self.client.delete_container(container)
            elif [entry async for entry in self.client.list(container, f"{name}/", limit=1)]:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)

    # fsspec mirrors the methods that all file systems have; these are not among them.
    rmdir = fsspec.asyn.sync_wrapper(_rmdir)
    modified = fsspec.asyn.sync_wrapper(_modified)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> SwiftletFile:
        return SwiftletFile(
            self, path, mode, block_size or "default", autocommit, cache_options=cache_options, **options
        )


@contextmanager
def _remembering() -> Iterator[None]:
    """Within the block what listings tell is remembered."""
    if _seen.get() is not None:
        yield
        return
    token = _seen.set({})
    try:
        yield
    finally:
        _seen.reset(token)


def _remember(found: Iterable[dict[str, Any]]) -> None:
    if (seen := _seen.get()) is not None:
        seen.update((one["name"], one) for one in found)


def _close(loop: asyncio.AbstractEventLoop | None, pid: int, client: AsyncClient) -> None:
    """Close the connections of a file system that nobody uses any more."""
    if loop is None or not loop.is_running() or pid != os.getpid():
        return
    closing = asyncio.run_coroutine_threadsafe(client.close(), loop)
    if asyncio._get_running_loop() is not loop:
        # At the end of the process nobody else waits for it.
        with suppress(TimeoutError):
            closing.result(_CLOSE_WITHIN_S)
