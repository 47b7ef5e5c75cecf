"""What is sent: bytes, parts of files and streams, each with its size if that is known.

A body can be read again from its beginning when `is_repeatable`; one that can't is read at most once, and a request
that has begun to read it is not repeated. Files are read by threads, so that the event loop goes on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol, TypeAlias, cast

from swiftlet.client.concurrency import in_thread
from swiftlet.client.digests import Both, Buffer, etag_of
from swiftlet.client.errors import ConfigurationError, LocalError, NotRepeatable

CHUNK = 1 << 20
LARGE_CHUNK = 4 << 20
"""Bytes that are in memory already are given to devices by so many at a time."""
_IN_LOOP = 1 << 20
"""Up to so many bytes are hashed by the event loop itself: a thread would cost more."""

Source: TypeAlias = Buffer | os.PathLike[str] | BinaryIO | AsyncIterable[bytes] | Iterable[bytes]
"""Sources of uploads are bytes, the path of a file (a `Path`), an open file, or an iterable of bytes of either kind."""


class Body(Protocol):
    """The body of an upload."""

    @property
    def size(self) -> int | None:
        """Bytes in all; None when only the end will tell."""

    @property
    def is_repeatable(self) -> bool:
        """Whether it can be read now, from the beginning: always, or as long as nobody has begun."""

    @property
    def reads_once(self) -> bool:
        """Whether it can be read only once."""

    def chunks(self, *, hashed: bool = True) -> AsyncGenerator[Buffer, None]:
        """Return the bytes from the beginning; NotRepeatable when they can't be read again.

        Without `hashed` nobody is going to ask whether an ETag `matches` these bytes, and larger pieces are welcome.
        """

    def whole(self) -> Buffer | None:
        """Return all bytes if they are in memory in one piece; None when they come by `chunks`."""

    async def matches(self, etag: str) -> bool:
        """Return whether the ETag is that of the bytes which were read last."""


class BytesBody:
    """A body that is in memory as a whole."""

    def __init__(self, data: Buffer) -> None:
        """Keep a view: the caller leaves the bytes as they are until the request is done."""
        self.data = memoryview(data).cast("B")
        self._given = data

    @property
    def size(self) -> int:
        """Return the number of bytes."""
        return len(self.data)

    @property
    def is_repeatable(self) -> bool:
        """Return True: the bytes can be read again."""
        return True

    @property
    def reads_once(self) -> bool:
        """Return False: each read gives the same bytes."""
        return False

    async def chunks(self, *, hashed: bool = True) -> AsyncGenerator[Buffer, None]:
        """Yield the bytes in pieces, larger ones where nobody digests them meanwhile."""
        step = CHUNK if hashed else LARGE_CHUNK
        for start in range(0, len(self.data), step):
            yield self.data[start : start + step]

    def whole(self) -> Buffer | None:
        """Return the bytes as they were given."""
        return self._given

    def state(self) -> object:
        """Return what changes when the bytes do: nothing tells."""
        return None

    async def matches(self, etag: str) -> bool:
        """Whether the ETag is that of the bytes."""
        if len(self.data) <= _IN_LOOP:
            return etag_of(self.data, etag) == etag
        return await asyncio.to_thread(etag_of, self.data, etag) == etag


class FileBody:
    """A part of a file, or all of it."""

    def __init__(self, path: Path, start: int = 0, size: int | None = None) -> None:
        """Take what is from `start` on; LocalError if there is no such file."""
        self.path = path
        self.start = start
        with local_errors(path):
            self._size = max(0, path.stat().st_size - start) if size is None else size
        self._digests: Both | None = None

    @property
    def size(self) -> int:
        """Return the number of bytes that there were when the body was made."""
        return self._size

    @property
    def is_repeatable(self) -> bool:
        """Return True: the bytes can be read again."""
        return True

    @property
    def reads_once(self) -> bool:
        """Return False: each read gives the same bytes."""
        return False

    async def chunks(self, *, hashed: bool = True) -> AsyncGenerator[Buffer, None]:
        """Yield the bytes; LocalError when the file can't be read or has become shorter."""
        digests = self._digests = Both() if hashed else None
        with local_errors(self.path):
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            reading: asyncio.Future[bytes] | None = None
            try:
                position, end = self.start, self.start + self._size
                while position < end or reading is not None:
                    # The next piece is read and hashed while this one is sent.
                    data = None if reading is None else await reading
                    reading = None
                    if position < end:
                        size = min(CHUNK, end - position)
                        read = partial(self._read, descriptor, size, position, digests)
                        reading = asyncio.ensure_future(in_thread(read))
                        position += size
                    if data is not None:
                        yield data
            finally:
                if reading is not None:
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)
                os.close(descriptor)

    def whole(self) -> Buffer | None:
        """Return None: they are read piece by piece."""
        return None

    def _read(self, descriptor: int, size: int, position: int, digests: Both | None) -> bytes:
        data = os.pread(descriptor, size, position)
        while len(data) < size:
            more = os.pread(descriptor, size - len(data), position + len(data))
            if not more:
                raise LocalError(f"{self.path} has become shorter while it was read")
            data += more
        if digests is not None:
            digests.update(data)
        return data

    def state(self) -> object:
        """Return what changes when the file does: its inode, size, and time of change."""
        with local_errors(self.path):
            status = self.path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns

    async def matches(self, etag: str) -> bool:
        """Whether the ETag is that of the bytes which were sent."""
        return self._digests is not None and self._digests.matches(etag)


class StreamBody:
    """Bytes that come from an iterator; they can be read once."""

    def __init__(self, source: AsyncIterable[bytes], size: int | None = None) -> None:
        """Take all that comes; `size` if it is known."""
        self._source = source
        self._size = size
        self._begun = False
        self._digests: Both | None = None

    @property
    def size(self) -> int | None:
        """The size that was announced."""
        return self._size

    @property
    def is_repeatable(self) -> bool:
        """Return True until somebody has begun to read."""
        return not self._begun

    @property
    def reads_once(self) -> bool:
        """Return True: a stream has no beginning to go back to."""
        return True

    async def chunks(self, *, hashed: bool = True) -> AsyncGenerator[Buffer, None]:
        """Yield the bytes, once."""
        if self._begun:
            raise NotRepeatable("the body can be read only once, and a request has begun to send it before")
        self._begun = True
        digests = self._digests = Both() if hashed else None
        seen = 0
        async for data in self._source:
            seen += len(data)
            if self._size is not None and seen > self._size:
                raise ConfigurationError(f"the body is longer than the {self._size} bytes that were announced")
            if digests is not None:
                digests.update(data)
            yield data
        if self._size is not None and seen < self._size:
            raise ConfigurationError(f"the body ended after {seen} of the {self._size} bytes that were announced")

    def whole(self) -> Buffer | None:
        """Return None: they are read piece by piece."""
        return None

    async def matches(self, etag: str) -> bool:
        """Whether the ETag is that of the bytes which were sent."""
        return self._digests is not None and self._digests.matches(etag)


def body_of(source: Source, size: int | None = None) -> Body:
    """Return what a source is as a body; `size` is that of a stream, if it is known."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return BytesBody(source)
    if isinstance(source, str):
        raise ConfigurationError("text is no body: encode it for its bytes, or name a file with pathlib.Path")
    if isinstance(source, os.PathLike):
        path = Path(source)
        if path.is_file():
            return FileBody(path)
        with local_errors(path):
            return StreamBody(_file(path.open("rb")), size)
    if hasattr(source, "read"):
        return StreamBody(_file(cast(BinaryIO, source)), size)
    if hasattr(source, "__aiter__"):
        return StreamBody(cast(AsyncIterable[bytes], source), size)
    if hasattr(source, "__iter__"):
        return StreamBody(_iterated(source), size)
    raise ConfigurationError(f"{type(source).__name__} is no body: give bytes, a Path, a file, or an iterable of bytes")


@contextmanager
def local_errors(path: object) -> Iterator[None]:
    """Turn errors of the system about a file into LocalError."""
    try:
        yield
    except OSError as error:
        raise LocalError(f"{path}: {error.strerror or error}") from error


async def _file(file: BinaryIO) -> AsyncIterator[bytes]:
    while data := await asyncio.to_thread(file.read, CHUNK):
        if not isinstance(data, bytes):
            raise ConfigurationError("the file is open for text: open it for bytes, with mode 'rb'")
        yield data


async def _iterated(source: Iterable[bytes]) -> AsyncIterator[bytes]:
    iterator = iter(source)
    end = object()
    while (data := await asyncio.to_thread(next, iterator, end)) is not end:
        yield cast(bytes, data)
