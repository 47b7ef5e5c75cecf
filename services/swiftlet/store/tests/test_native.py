"""What the adapter adds to the native store: the domain's errors, expiry from metadata, another life of a device."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import swiftlet_native

from swiftlet.errors import DeviceFailed, DeviceLocked, DiskFull, NotFound
from swiftlet.store.native import NativeStore
from swiftlet.testing.store.conformance import at, content, key_of, post, put, some_bytes

VOLUME = 8 << 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[NativeStore]:
    store = NativeStore(tmp_path, volume_bytes=VOLUME)
    yield store
    store.close()


def test_a_device_has_one_owner(tmp_path: Path, store: NativeStore) -> None:
    with pytest.raises(DeviceLocked, match="in use by process"):
        NativeStore(tmp_path)


def test_a_device_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(DeviceFailed):
        NativeStore(tmp_path / "missing")
    with pytest.raises(DeviceFailed, match="mount"):
        NativeStore(tmp_path, require_mount=True)


def test_the_reserve_is_kept_and_deletions_go_on(tmp_path: Path) -> None:
    first = NativeStore(tmp_path, volume_bytes=VOLUME)
    put(first, key_of(1), 1, b"data")
    first.close()
    full = NativeStore(tmp_path, volume_bytes=VOLUME, reserve_percent=100)
    with pytest.raises(DiskFull):
        full.create(key_of(2), 10)
    full.delete(key_of(1), at(2), "/a/c/o")
    full.close()


def test_another_life(tmp_path: Path, store: NativeStore) -> None:
    large = some_bytes(2_500_000)
    put(store, key_of(1), 1, b"small", color="blue")
    put(store, key_of(2), 1, large)
    post(store, key_of(1), 2, 2, color="red")
    before = store.suffix_hashes(0, 7)
    store.close()
    again = NativeStore(tmp_path, volume_bytes=VOLUME)
    assert content(again, key_of(1)) == b"small"
    assert content(again, key_of(2)) == large
    assert again.stat(key_of(1)).metadata == {"color": "red"}
    assert again.suffix_hashes(0, 7) == before
    again.close()


def test_after_close_nothing_is_done(store: NativeStore) -> None:
    store.close()
    with pytest.raises(DeviceFailed, match="closed"):
        store.create(key_of(1))
    with pytest.raises(DeviceFailed, match="closed"):
        store.delete(key_of(1), at(1), "/a/c/o")


def test_the_limit_of_a_writer_decides_where_data_goes(tmp_path: Path, store: NativeStore) -> None:
    writer = store.create(key_of(1), 4, aggregate_below=3)
    writer.write(b"data")
    assert len(list(tmp_path.glob("large/*/*"))) == 1
    writer.abort()
    assert list(tmp_path.glob("large/*/*")) == []
    with pytest.raises(NotFound):
        store.stat(key_of(1))


def test_expiry_comes_from_the_metadata(tmp_path: Path) -> None:
    store = NativeStore(tmp_path, volume_bytes=VOLUME)
    put(store, key_of(1), 1, b"", **{"X-Delete-At": "1800000000"})
    put(store, key_of(2), 1, b"", **{"X-Delete-At": "never"})
    store.close()
    native = swiftlet_native.Store(tmp_path, volume_bytes=VOLUME)
    key = key_of(1)
    assert native.expired(1_800_000_000) == [((key.policy, key.partition, key.digest), at(1).value)]
    assert native.expired(1_799_999_999) == []
    assert native.check() == []
    native.close()
