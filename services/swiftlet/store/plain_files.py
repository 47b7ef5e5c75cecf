"""A plain store's open files: the writer of a new version and the reader of one."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Self

from swiftlet_native import Hasher

from swiftlet.errors import ChecksumMismatch, DeviceFailed, SizeMismatch
from swiftlet.model import ObjectInfo, ObjectKey, PutFooter, PutRecord
from swiftlet.store.failpoints import reach
from swiftlet.store.plain_device import PlainDevice
from swiftlet.store.plain_format import FileKind, pack_tail, put_fields

_STEP_BYTES = 32 * 1024 * 1024
"""After this many bytes an upload looks at the reserve again and starts its data on the way to the disk, so that
the sync before the commit of a very large object does not take longer than its sender waits for an answer."""

Install = Callable[[ObjectKey, PutRecord, str], bool]
"""Brings a synced temporary file to its place; False when the same version is there already."""


class PlainWriter:
    """A new version in a temporary file."""

    def __init__(self, device: PlainDevice, key: ObjectKey, install: Install) -> None:
        """Open the temporary file."""
        self._device = device
        self._key = key
        self._install = install
        self._hasher = Hasher(md5=False, xxh3=True)
        self._since_step = 0
        self._fd, self._path = device.temporary()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes; an error ends the writer."""
        try:
            with self._device.errors():
                write_all(self._live(), data)
            self._hasher.update(data)
            self._since_step += len(data)
            if self._since_step >= _STEP_BYTES:
                self._step()
        except BaseException:
            self.abort()
            raise

    def _step(self) -> None:
        self._since_step = 0
        self._device.check_room(0)
        with self._device.errors():
            self._device.sync_data(self._live())

    def commit(self, record: PutRecord, footer: PutFooter) -> None:
        """Check, append metadata and footer, sync, and bring the file to its place."""
        try:
            self._check(footer)
            self._device.check_writable()
            with self._device.errors():
                fd = self._live()
                write_all(fd, pack_tail(FileKind.DATA, footer.size, footer.xxh3, put_fields(record, footer)))
                reach("written")
                self._device.sync(fd)
                reach("synced")
                self._install(self._key, record, self._path)
        finally:
            self.abort()

    def _check(self, footer: PutFooter) -> None:
        if self._hasher.size != footer.size:
            raise SizeMismatch(f"{self._hasher.size} bytes arrived, {footer.size} were announced")
        if self._hasher.xxh3_64() != footer.xxh3:
            raise ChecksumMismatch("the bytes that arrived have another checksum than those that were sent")

    def _live(self) -> int:
        if self._fd < 0:
            raise DeviceFailed("this upload was given up after an earlier error")
        return self._fd

    def abort(self) -> None:
        """Close and remove the temporary file, unless it is in its place already."""
        if self._fd < 0:
            return
        os.close(self._fd)
        self._fd = -1
        with self._device.errors():
            try:
                os.unlink(self._path)
            except FileNotFoundError:
                return  # It was renamed to its place.


def write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    """Write to the end, however little the system takes at a time."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])


class PlainReader:
    """A data file held open; replaced or deleted, it stays readable."""

    def __init__(self, device: PlainDevice, fd: int, info: ObjectInfo) -> None:
        """`fd` becomes the reader's."""
        self._device = device
        self._fd = fd
        self._info = info

    @property
    def info(self) -> ObjectInfo:
        """The merged object this reader shows."""
        return self._info

    def read(self, offset: int, length: int) -> bytes:
        """Bytes `[offset, offset + length)`, shorter only at the end."""
        wanted = max(0, min(length, self._info.size - offset))
        with self._device.errors():
            data = os.pread(self._fd, wanted, offset)
            while len(data) < wanted:
                more = os.pread(self._fd, wanted - len(data), offset + len(data))
                if not more:
                    raise DeviceFailed(f"{self._info.name} ends after {offset + len(data)} bytes on the device")
                data += more
        return data

    def close(self) -> None:
        """Close the file; harmless a second time."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
