"""The conformance suite, run against the native store and the in-memory twin."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from swiftlet.model import ObjectKey
from swiftlet.store.native import NativeStore
from swiftlet.store.protocol import Store
from swiftlet.testing.store.conformance import StoreConformance
from swiftlet.testing.store.faulty_native import RAM, find_put, flip_in_place
from swiftlet.testing.store.memory import MemoryStore


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
