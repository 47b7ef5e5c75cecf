"""Objects as files: read by ranges, or written as a stream that becomes an object when the file is closed."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import fsspec.asyn
from fsspec.spec import AbstractBufferedFile

from swiftlet.client.client import AsyncClient
from swiftlet.client.errors import NotFound
from swiftlet.client.filesystem.paths import MISSING, file_of, known_options, os_errors
from swiftlet.client.values import ALWAYS, Conditions, Written


class SwiftletFile(AbstractBufferedFile):
    """An object that is read by ranges, or written as a stream."""

    def __init__(self, fs: Any, path: str, mode: str = "rb", *arguments: Any, **options: Any) -> None:
        """Open an object; in mode `xb`, FileExistsError if there is one."""
        self._upload: _Upload | None = None
        path = fs._strip_protocol(path)
        file_of(path)
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
        self._upload = _Upload(self.fs.client, self.path, self.mode, known_options(self.kwargs))
        fsspec.asyn.sync(self.fs.loop, self._upload.begin)

    def _upload_chunk(self, final: bool = False) -> bool:
        assert self._upload is not None
        with os_errors(self.path):
            fsspec.asyn.sync(self.fs.loop, self._upload.add, self.buffer.getvalue())
            if final and self.autocommit:
                self.commit()
        return True

    def commit(self) -> None:
        """Let the object appear."""
        if self._upload is not None:
            with os_errors(self.path):
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
        self._name = file_of(path)
        self._mode = mode
        self._options = options

    async def begin(self) -> None:
        """Start the upload, which takes what is written from then on."""
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        self._task = asyncio.ensure_future(self._put())

    async def _put(self) -> Written:
        conditions = MISSING if self._mode == "xb" else ALWAYS
        if self._mode == "ab":
            try:
                async with self._client.open(*self._name) as before:
                    conditions = Conditions(if_match=before.info.etag)
                    return await self._client.put(
                        *self._name, self._chunks(before), conditions=conditions, **self._options
                    )
            except NotFound:
                conditions = MISSING
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
        """Cancel the upload, and wait until it has ended."""
        self._task.cancel()
        await asyncio.wait([self._task])
