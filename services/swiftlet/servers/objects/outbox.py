"""Listing rows that their container server could not take: kept on the device until it can.

One small file per object and container replica, named by a hash of both, so that a newer row replaces the older
one and the outbox never holds more rows than there are objects. A row is synced before its write is answered.

Fault model: the process may die or the power fail at any point; a row that was promised is then found again on
the next start, one that was already delivered may be delivered twice (rows merge by timestamp: no harm). A
damaged file is set aside as `<name>.damaged`; the container's other replicas have the row or get it from the
other replicas of the object. A file of another format version stays as it is, and counts as a row that waits: it is
delivered by a program that understands it, or replaced by a newer row of the same object. The number of rows is
bounded: a full outbox makes the server refuse writes that would need it, before they happen.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from swiftlet_native import xxh3_64, xxh3_128

from swiftlet.errors import device_error
from swiftlet.formats import other_version
from swiftlet.model import ObjectRow
from swiftlet.transport.wire import WireError, flag, json_bytes, json_object, number, text, timestamp

_log = logging.getLogger(__name__)
VERSION = 1
"""The version of the files' format."""
_SUFFIX = ".row"
_CHECK_SIZE = 8


class OtherVersion(Exception):
    """A file is of another format version."""


@dataclass(frozen=True, slots=True)
class PendingRow:
    """A row, where it belongs, and since when it waits (seconds since the epoch)."""

    account: str
    container: str
    replica: int
    row: ObjectRow
    queued_s: float

    @property
    def group(self) -> tuple[str, str, int]:
        """The container replica it is for."""
        return self.account, self.container, self.replica

    @property
    def name(self) -> str:
        """Return the name of its file: there is one per object and container replica."""
        parts = (self.account, self.container, str(self.replica), self.row.name)
        return xxh3_128("\0".join(parts).encode("utf-8", "surrogatepass")).hex() + _SUFFIX


class Outbox:
    """The waiting rows of one device. Calls block; safe from many threads."""

    def __init__(self, directory: Path, limit: int = 100_000, now_s: Callable[[], float] = time.time) -> None:
        """Make the directory if need be and read what an earlier process left."""
        self._directory = str(directory)
        self._limit = limit
        self._now_s = now_s
        self._mutex = threading.Lock()
        self._numbers = itertools.count()
        self._rows: dict[str, PendingRow] = {}
        self._refused: set[str] = set()
        os.makedirs(self._directory, exist_ok=True)
        _sync_directory(os.path.dirname(self._directory) or ".")
        for name in os.listdir(self._directory):
            self._load(name)

    def _load(self, name: str) -> None:
        path = os.path.join(self._directory, name)
        if name.endswith(".tmp"):
            os.unlink(path)
        elif name.endswith(_SUFFIX):
            with open(path, "rb") as file:
                data = file.read()
            try:
                self._rows[name] = _unpack(data)
            except OtherVersion as error:
                _log.error("a listing row is not delivered: %s", other_version(f"{path}", error, VERSION))
                self._refused.add(name)
            except WireError as error:
                _log.error("set aside a damaged listing row: path=%s error=%s", path, error)
                os.rename(path, path + ".damaged")

    def __len__(self) -> int:
        """Rows waiting, with those of another format version."""
        return len(self._rows) + len(self._refused)

    @property
    def full(self) -> bool:
        """Whether writes that may need the outbox should be refused."""
        return len(self) >= self._limit

    def add(self, account: str, container: str, replica: int, row: ObjectRow) -> None:
        """Keep a row durably, merged with the one of the same object that is waiting; DiskFull, DeviceFailed."""
        pending = PendingRow(account, container, replica, row.plain, self._now_s())
        name = pending.name
        try:
            with self._mutex:
                held = self._rows.get(name)
                if held is not None:
                    pending = replace(pending, row=held.row.merged(pending.row))
                if held is None or held.row != pending.row:
                    self._write(name, pending)
                    self._rows[name] = pending
            # The directory may be synced by several threads at once: each returns with its own row durable.
            _sync_directory(self._directory)
        except OSError as error:
            raise device_error(error, f"outbox {self._directory}") from error

    def _write(self, name: str, pending: PendingRow) -> None:
        temporary = os.path.join(self._directory, f"{next(self._numbers)}.tmp")
        with open(temporary, "wb") as file:
            file.write(_pack(pending))
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, os.path.join(self._directory, name))
        self._refused.discard(name)

    def waiting(self) -> list[PendingRow]:
        """All rows, oldest first."""
        with self._mutex:
            return sorted(self._rows.values(), key=lambda pending: pending.queued_s)

    def done(self, pending: PendingRow) -> None:
        """Forget a row that was delivered, unless a newer one took its place meanwhile."""
        name = pending.name
        with self._mutex:
            if self._rows.get(name) == pending:
                os.unlink(os.path.join(self._directory, name))
                del self._rows[name]


def _pack(pending: PendingRow) -> bytes:
    row = pending.row
    fields = {
        "version": VERSION,
        "account": pending.account,
        "container": pending.container,
        "replica": pending.replica,
        "queued_ms": int(pending.queued_s * 1000),
        "name": row.name,
        "timestamp": row.timestamp.value,
        "size": row.size,
        "etag": row.etag,
        "content_type": row.content_type,
        "deleted": row.deleted,
        "content_type_timestamp": row.content_type_timestamp.value,
        "meta_timestamp": row.meta_timestamp.value,
    }
    data = json_bytes(fields)
    return xxh3_64(data).to_bytes(_CHECK_SIZE, "big") + data


def _unpack(data: bytes) -> PendingRow:
    if xxh3_64(data[_CHECK_SIZE:]).to_bytes(_CHECK_SIZE, "big") != data[:_CHECK_SIZE]:
        raise WireError("the checksum does not match")
    fields = json_object(data[_CHECK_SIZE:])
    if number(fields, "version") != VERSION:
        raise OtherVersion(fields["version"])
    row = ObjectRow(
        text(fields, "name"),
        timestamp(fields, "timestamp"),
        number(fields, "size"),
        text(fields, "etag"),
        text(fields, "content_type"),
        flag(fields, "deleted"),
        timestamp(fields, "content_type_timestamp"),
        timestamp(fields, "meta_timestamp"),
    )
    queued_s = number(fields, "queued_ms") / 1000
    return PendingRow(text(fields, "account"), text(fields, "container"), number(fields, "replica"), row, queued_s)


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
