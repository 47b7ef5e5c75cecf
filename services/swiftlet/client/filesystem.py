"""A store as a file system for fsspec: `swiftlet://CONTAINER/PATH`, for pandas, pyarrow, dask, zarr and many others.

Containers are the folders of the root; below them folders exist as long as a name begins with theirs. Nothing is
cached, so what others write is seen. A file that is being written appears when it is closed, and not at all when the
block that writes it fails; one that is being read stays one version, or the read fails. Instances may be used after a
fork (a DataLoader's workers) and can be pickled.

Options are the variables that the environment has for other programs, in lower case (`st_auth`, `st_user`, `st_key`,
`os_auth_url`, ..., `swiftlet_credentials`), and `client_options` for `swiftlet.client.Options`; without any, the
environment itself says who asks.
"""

from __future__ import annotations

import asyncio
import errno
import os
import weakref
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Any

import fsspec.asyn
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.core import has_magic
from fsspec.spec import AbstractBufferedFile
from fsspec.utils import stringify_path

from swiftlet.client.client import AsyncClient
from swiftlet.client.concurrency import run_all
from swiftlet.client.credentials import find_credentials
from swiftlet.client.errors import (
    ClientError,
    ConfigurationError,
    Conflict,
    Forbidden,
    NotFound,
    PreconditionFailed,
    RangeNotSatisfiable,
    Unauthorized,
)
from swiftlet.client.options import Options
from swiftlet.client.values import ALWAYS, Conditions, Entry, ObjectInfo, Span, Written

_DIRECTORY = "application/directory"
_VARIABLES = ("st_", "os_", "swiftlet_credentials")
_CLOSE_WITHIN_S = 2.0
_MISSING = Conditions(if_none_match="*")


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
        self.client = AsyncClient(found, Options(**(client_options or {})))
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
        container, name = _split(path)
        with _os_errors(path):
            if not container:
                return _folder("")
            if not name:
                counted = await self.client.container(container)
                return {**_folder(container), "objects": counted.objects, "bytes": counted.size}
            try:
                return _file_of_info(path, await self.client.head(container, name))
            except NotFound:
                async for _entry in self.client.list(container, f"{name}/", limit=1):
                    return _folder(path)
                raise

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        container, name = _split(path)
        with _os_errors(path):
            if not container:
                found = [_folder(one.name) async for one in self.client.containers()]
            else:
                below = f"{name}/" if name else ""
                entries = self.client.list(container, below, delimiter="/")
                found = [_entry(container, entry) async for entry in entries if entry.name != below]
        if not found and name:
            # A file, or nothing.
            known = await self._info(path)
            found = [known] if known["type"] == "file" else []
        _remember(found)
        return _unique(found) if detail else sorted({one["name"] for one in found})

    async def _find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **options: Any
    ) -> Any:
        path = self._strip_protocol(path)
        container, name = _split(path)
        if not container:
            return await super()._find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **options)
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        if (known := (_seen.get() or {}).get(path)) is not None and known["type"] == "file":
            return {path: known} if detail else [path]
        found: dict[str, dict[str, Any]] = {}
        below = f"{name}/" if name else ""
        try:
            with _os_errors(path):
                async for entry in self.client.list(container, below + str(options.get("prefix", ""))):
                    _add(found, path, container, entry, maxdepth, withdirs)
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
        container, name = _file(path)
        etag = options.get("etag")
        same = Conditions(if_match=etag) if etag else ALWAYS
        with _os_errors(path):
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
        with _os_errors(rpath):
            await self.client.download(*_file(rpath), lpath, progress=_progress(callback))

    # --- writing ---

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        path = self._strip_protocol(path)
        with _os_errors(path):
            await self.client.put(*_file(path), value, conditions=_conditions(mode), **_headers(options))

    async def _put_file(
        self, lpath: str, rpath: str, mode: str = "overwrite", callback: Any = DEFAULT_CALLBACK, **options: Any
    ) -> None:
        rpath = self._strip_protocol(rpath)
        if await asyncio.to_thread(os.path.isdir, lpath):
            await self._makedirs(rpath, exist_ok=True)
            return
        with _os_errors(rpath):
            await self.client.put(
                *_file(rpath),
                Path(lpath),
                conditions=_conditions(mode),
                progress=_progress(callback),
                **_headers(options),
            )

    async def _cp_file(self, path1: str, path2: str, **_: Any) -> None:
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if (_seen.get() or {}).get(path1, {}).get("type") == "directory":
            return
        try:
            with _os_errors(path1):
                await self.client.copy(_file(path1), _file(path2))
        except FileNotFoundError:
            if not await self._isdir(path1):
                raise

    async def _rm_file(self, path: str, **_: Any) -> None:
        path = self._strip_protocol(path)
        with _os_errors(path):
            await self.client.delete(*_file(path), with_segments=True)

    async def _rm(
        self, path: Any, recursive: bool = False, batch_size: int | None = None, maxdepth: int | None = None, **_: Any
    ) -> None:
        given = path if isinstance(path, list) else [path]
        plain = [self._strip_protocol(one) for one in given if not has_magic(one)]
        magic = [one for one in given if has_magic(one)]
        found = [*plain, *(await self._expand_path(magic) if magic else [])]
        for one in found:
            container, name = _split(one)
            if not recursive:
                await self._rm_one(one)
                continue
            files = await self._below(one, maxdepth)
            if not files and name:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), one)
            with _os_errors(one):
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
        container, name = _split(path)
        found = []
        with _os_errors(path):
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
        container, name = _split(path)
        if not container:
            return
        with _os_errors(path):
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
        container, name = _split(path)
        with _os_errors(path):
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


class SwiftletFile(AbstractBufferedFile):
    """An object that is read by ranges, or written as a stream."""

    def __init__(self, fs: SwiftletFileSystem, path: str, mode: str = "rb", *arguments: Any, **options: Any) -> None:
        """Open an object; in mode `xb`, FileExistsError if there is one."""
        self._upload: _Upload | None = None
        path = fs._strip_protocol(path)
        _file(path)
        if mode == "xb" and fs.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if mode == "rb" and fs.info(path)["type"] != "file":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        super().__init__(fs, path, mode, *arguments, **options)
        if mode == "ab" and fs.exists(path):
            self.loc = fs.info(path)["size"]

    def _fetch_range(self, start: int, end: int) -> bytes:
        data: bytes = self.fs.cat_file(self.path, start=start, end=end, etag=self.details["etag"])
        return data

    def _initiate_upload(self) -> None:
        self._upload = _Upload(self.fs.client, self.path, self.mode, _headers(self.kwargs))
        fsspec.asyn.sync(self.fs.loop, self._upload.begin)

    def _upload_chunk(self, final: bool = False) -> bool:
        assert self._upload is not None
        with _os_errors(self.path):
            fsspec.asyn.sync(self.fs.loop, self._upload.add, self.buffer.getvalue())
            if final and self.autocommit:
                self.commit()
        return True

    def commit(self) -> None:
        """Let the object appear."""
        if self._upload is not None:
            with _os_errors(self.path):
                fsspec.asyn.sync(self.fs.loop, self._upload.end)

    def discard(self) -> None:
        """Forget what was written."""
        if self._upload is not None:
            fsspec.asyn.sync(self.fs.loop, self._upload.cancel)
        self._upload = None
        self.forced = True
        self.closed = True

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Close the file; nothing is stored when the block has failed."""
        if kind is not None and self.mode != "rb" and not self.closed:
            self.discard()
        else:
            self.close()


class _Upload:
    """An object that is stored while its bytes come: the client divides it into segments if it gets large."""

    def __init__(self, client: AsyncClient, path: str, mode: str, options: Mapping[str, Any]) -> None:
        self._client = client
        self._name = _file(path)
        self._mode = mode
        self._options = options

    async def begin(self) -> None:
        """Start the request."""
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        self._task = asyncio.ensure_future(self._put())

    async def _put(self) -> Written:
        conditions = _MISSING if self._mode == "xb" else ALWAYS
        if self._mode == "ab":
            try:
                async with self._client.open(*self._name) as before:
                    conditions = Conditions(if_match=before.info.etag)
                    return await self._client.put(
                        *self._name, self._chunks(before), conditions=conditions, **self._options
                    )
            except NotFound:
                conditions = _MISSING
        return await self._client.put(*self._name, self._chunks(None), conditions=conditions, **self._options)

    async def _chunks(self, before: Any) -> AsyncGenerator[bytes, None]:
        if before is not None:
            async for data in before:
                yield data
        while (data := await self._queue.get()) is not None:
            yield data

    async def add(self, data: bytes | None) -> None:
        """Pass bytes on; the error of the request, if it has failed."""
        passing = asyncio.ensure_future(self._queue.put(data))
        await asyncio.wait([passing, self._task], return_when=asyncio.FIRST_COMPLETED)
        if not passing.done():
            passing.cancel()
            await self._task

    async def end(self) -> None:
        """Return when the object is stored."""
        await self.add(None)
        await self._task

    async def cancel(self) -> None:
        """Stop the request."""
        self._task.cancel()
        await asyncio.wait([self._task])


def _split(path: str) -> tuple[str, str]:
    container, _, name = path.partition("/")
    return container, name


def _file(path: str) -> tuple[str, str]:
    """Return the container and the name of what can only be a file."""
    container, name = _split(path)
    if not name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    return container, name


def _folder(name: str) -> dict[str, Any]:
    return {"name": name, "size": 0, "type": "directory"}


def _file_of_info(path: str, info: ObjectInfo) -> dict[str, Any]:
    if info.content_type.startswith(_DIRECTORY):
        return _folder(path)
    return {
        "name": path,
        "size": info.size,
        "type": "file",
        "etag": info.etag,
        "content_type": info.content_type,
        "last_modified": info.last_modified,
        "version_id": info.version_id,
    }


def _entry(container: str, entry: Entry) -> dict[str, Any]:
    path = f"{container}/{entry.name}"
    if entry.is_prefix or entry.name.endswith("/") or entry.content_type.startswith(_DIRECTORY):
        return _folder(path.rstrip("/"))
    return {
        "name": path,
        "size": entry.size,
        "type": "file",
        "etag": entry.etag,
        "content_type": entry.content_type,
        "last_modified": entry.last_modified,
        "version_id": entry.version_id,
    }


def _unique(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return entries by name, each once: a folder may be told as a prefix and as an object that stands for it."""
    by_name = {one["name"]: one for one in reversed(found)}
    return [by_name[name] for name in sorted(by_name)]


def _add(
    found: dict[str, dict[str, Any]], path: str, container: str, entry: Entry, maxdepth: int | None, withdirs: bool
) -> None:
    """Add an object below a path to what was found, with the folders between them if they are wanted."""
    made = _entry(container, entry)
    parts = made["name"].removeprefix(path).strip("/").split("/")
    if withdirs:
        found.setdefault(path, _folder(path))
        for depth in range(1, len(parts)):
            if maxdepth is None or depth <= maxdepth:
                folder = f"{path}/{'/'.join(parts[:depth])}"
                found.setdefault(folder, _folder(folder))
    if (made["type"] == "file" or withdirs) and (maxdepth is None or len(parts) <= maxdepth):
        found[made["name"]] = made


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


def _conditions(mode: str) -> Conditions:
    return _MISSING if mode == "create" else ALWAYS


def _headers(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of fsspec's options the client knows."""
    return {name: options[name] for name in ("content_type", "metadata", "headers") if options.get(name) is not None}


def _progress(callback: Any) -> Any:
    def report(moved: int, total: int | None) -> None:
        if total is not None and callback.size != total:
            callback.set_size(total)
        callback.absolute_update(moved)

    return report


@contextmanager
def _os_errors(path: str) -> Iterator[None]:
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


def _close(loop: asyncio.AbstractEventLoop | None, pid: int, client: AsyncClient) -> None:
    """Close the connections of a file system that nobody uses any more."""
    if loop is None or not loop.is_running() or pid != os.getpid():
        return
    closing = asyncio.run_coroutine_threadsafe(client.close(), loop)
    if asyncio._get_running_loop() is not loop:
        # At the end of the process nobody else waits for it.
        with suppress(TimeoutError):
            closing.result(_CLOSE_WITHIN_S)
