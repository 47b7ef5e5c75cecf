"""The native store with faults on demand, set as on the in-memory twin, in an in-memory directory of its own.

An injected fault occurs before the native code is called: the store itself stays sound, and continues when the fault is
gone. `native/crates/store/tests` has tests of real faults.
"""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path

from swiftlet.errors import DeviceFailed
from swiftlet.model import Entry, ObjectInfo, ObjectKey, PostRecord, PutFooter, PutRecord, Usage
from swiftlet.servers.objects.sync_copies import read_each, take_each
from swiftlet.store.native import NativeReader, NativeStore, NativeWriter
from swiftlet.testing.store.faults import Faults
from swiftlet.timestamp import Timestamp

RAM = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108 - directories of its own in there
_VOLUME_BYTES = 8 << 20


class _Writer(NativeWriter):
    """A writer that asks `faults` first."""

    faults: Faults

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.faults.reach("write")
        super().write(data)

    def commit(self, record: PutRecord, footer: PutFooter) -> None:
        """Make the version durable and visible."""
        self.faults.reach("commit")
        super().commit(record, footer)


class _Reader(NativeReader):
    """A reader that asks `faults` first."""

    faults: Faults

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes `[offset, offset + length)`."""
        self.faults.reach("read")
        return super().read(offset, length)


class FaultyNativeStore(NativeStore):
    """A native store that checks `faults` before each operation; its directory is removed when it is closed."""

    def __init__(self) -> None:
        """Create an empty store in a temporary directory."""
        self.faults = Faults()
        self.root = Path(tempfile.mkdtemp(prefix="swiftlet-native-", dir=RAM))
        super().__init__(self.root, volume_bytes=_VOLUME_BYTES)

    def close(self) -> None:
        """Close and clean up."""
        super().close()
        shutil.rmtree(self.root, ignore_errors=True)

    def create(self, key: ObjectKey, size: int | None = None, aggregate_below: int | None = None) -> NativeWriter:
        """Begin a new version."""
        self.faults.reach("create")
        made = super().create(key, size, aggregate_below)
        made.__class__ = _Writer
        assert isinstance(made, _Writer)
        made.faults = self.faults
        return made

    def open(self, key: ObjectKey) -> NativeReader:
        """Return the newest version for reading."""
        self.faults.reach("open")
        made = super().open(key)
        made.__class__ = _Reader
        assert isinstance(made, _Reader)
        made.faults = self.faults
        return made

    def stat(self, key: ObjectKey) -> ObjectInfo:
        """Return the newest version's description."""
        self.faults.reach("stat")
        return super().stat(key)

    def post(self, key: ObjectKey, record: PostRecord) -> None:
        self.faults.reach("post")
        super().post(key, record)

    def delete(self, key: ObjectKey, timestamp: Timestamp, name: str) -> None:
        self.faults.reach("delete")
        super().delete(key, timestamp, name)

    def read_copies(self, wanted: bytes, *, objects: int, size: int, alone: int) -> bytes:
        """Return copies of many objects, each with its own faults."""
        if self.faults.any:
            return read_each(self, wanted)
        return super().read_copies(wanted, objects=objects, size=size, alone=alone)

    def take_copies(self, copies: bytes, *, objects: int) -> bytes:
        """Store copies, each with its own faults."""
        if self.faults.any:
            return take_each(self, copies)
        return super().take_copies(copies, objects=objects)

    def policies(self) -> list[int]:
        """Return the indexes of the storage policies."""
        self.faults.reach("scan")
        return super().policies()

    def partitions(self, policy: int) -> list[int]:
        """Return the partitions that are not empty."""
        self.faults.reach("scan")
        return super().partitions(policy)

    def suffix_hashes(self, policy: int, partition: int) -> Mapping[str, bytes]:
        self.faults.reach("scan")
        return super().suffix_hashes(policy, partition)

    def entries(self, policy: int, partition: int, suffix: str) -> list[Entry]:
        """Return what is held in a suffix."""
        self.faults.reach("scan")
        return super().entries(policy, partition, suffix)

    def remove(self, key: ObjectKey, entry: Entry) -> bool:
        """Forget a handoff copy."""
        self.faults.reach("remove")
        return super().remove(key, entry)

    def verify(self, key: ObjectKey) -> None:
        """Read a version and check it."""
        self.faults.reach("verify")
        super().verify(key)

    def usage(self) -> Usage:
        """Return the fullness of the device."""
        if self.faults.broken:
            raise DeviceFailed("injected I/O error")
        return super().usage()

    def flip_data(self, key: ObjectKey) -> None:
        """Flip a bit of an object's data."""
        path, _, data = find_put(self.root, key)
        flip_in_place(path, data)

    def flip_metadata(self, key: ObjectKey) -> None:
        """Flip a bit of an object's metadata."""
        path, metadata, _ = find_put(self.root, key)
        flip_in_place(path, metadata + 8)


def find_put(root: Path, key: ObjectKey) -> tuple[Path, int, int]:
    """Return the volume with an object's PUT, and the offsets of its metadata and its data."""
    for path in sorted(root.glob("volumes/*")):
        content = path.read_bytes()
        at = content.find(key.digest)
        while at >= 24:
            magic, _version, kind, _policy, _partition, length = struct.unpack_from(">4sBBHII", content, at - 24)
            if (magic, kind) == (b"SWLR", 1):
                return path, at + 104, at + 104 + length
            at = content.find(key.digest, at + 1)
    raise AssertionError("no such record")


def flip_in_place(path: Path, offset: int) -> None:
    """Flip one bit of a file that is in use."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes((byte ^ 1,)))
