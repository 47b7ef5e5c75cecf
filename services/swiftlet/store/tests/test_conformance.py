"""The conformance suite, run against the native store, the plain one and the in-memory twin."""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from swiftlet.model import ObjectKey
from swiftlet.store.conformance import StoreConformance
from swiftlet.store.memory import MemoryStore
from swiftlet.store.native import NativeStore
from swiftlet.store.plain import PlainStore
from swiftlet.store.protocol import Store

RAM = "/dev/shm" if os.path.isdir("/dev/shm") else None


def data_file(root: str, key: ObjectKey) -> Path:
    (path,) = Path(root).glob(f"objects/*/*/*/{key.hex}/*.data")
    return path


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


class TestPlainStore(StoreConformance):
    root = ""

    @contextmanager
    def fresh(self) -> Iterator[Store]:
        with tempfile.TemporaryDirectory(dir=RAM) as root:
            store = PlainStore(Path(root))
            self.root = root
            try:
                yield store
            finally:
                store.close()
            assert os.listdir(Path(root) / "tmp") == []

    def flip_data(self, store: Store, key: ObjectKey) -> None:
        flip(data_file(self.root, key), 0)

    def flip_metadata(self, store: Store, key: ObjectKey) -> None:
        flip(data_file(self.root, key), store.stat(key).size + 2)


def find_put(root: str, key: ObjectKey) -> tuple[Path, int, int]:
    """The volume with an object's PUT, where its metadata begins, and where its data does."""
    for path in sorted(Path(root).glob("volumes/*")):
        content = path.read_bytes()
        at = content.find(key.digest)
        while at >= 24:
            magic, _version, kind, _policy, _partition, length = struct.unpack_from(">4sBBHII", content, at - 24)
            if (magic, kind) == (b"SWLR", 1):
                return path, at + 104, at + 104 + length
            at = content.find(key.digest, at + 1)
    raise AssertionError("no such record")


def flip_in_place(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes((byte ^ 1,)))


class TestNativeStore(StoreConformance):
    root = ""

    @contextmanager
    def fresh(self) -> Iterator[Store]:
        with tempfile.TemporaryDirectory(dir=RAM) as root:
            store = NativeStore(Path(root), volume_bytes=8 << 20)
            self.root = root
            try:
                yield store
            finally:
                store.close()

    def flip_data(self, store: Store, key: ObjectKey) -> None:
        path, _, data = find_put(self.root, key)
        flip_in_place(path, data)

    def flip_metadata(self, store: Store, key: ObjectKey) -> None:
        path, metadata, _ = find_put(self.root, key)
        flip_in_place(path, metadata + 8)


class TestMemoryStore(StoreConformance):
    @contextmanager
    def fresh(self) -> Iterator[Store]:
        yield MemoryStore()

    def flip_data(self, store: Store, key: ObjectKey) -> None:
        assert isinstance(store, MemoryStore)
        store.flip_data(key)

    def flip_metadata(self, store: Store, key: ObjectKey) -> None:
        assert isinstance(store, MemoryStore)
        store.flip_metadata(key)
