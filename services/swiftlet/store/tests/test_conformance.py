"""The conformance suite, run against the native store, the plain one and the in-memory twin."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from swiftlet.model import ObjectKey
from swiftlet.store.native import NativeStore
from swiftlet.store.plain import PlainStore
from swiftlet.store.protocol import Store
from swiftlet.testing.store.conformance import StoreConformance
from swiftlet.testing.store.faulty_native import RAM, find_put, flip_in_place
from swiftlet.testing.store.memory import MemoryStore


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
        path, _, data = find_put(Path(self.root), key)
        flip_in_place(path, data)

    def flip_metadata(self, store: Store, key: ObjectKey) -> None:
        path, metadata, _ = find_put(Path(self.root), key)
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
