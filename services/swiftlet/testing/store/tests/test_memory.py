"""What is particular to the in-memory twin: faults, and the difference between visible and durable."""

from __future__ import annotations

import pytest

from swiftlet.errors import DeviceFailed, DiskFull, NotFound
from swiftlet.model import PutRecord
from swiftlet.testing.store.conformance import NAME, at, content, footer_of, key_of, put
from swiftlet.testing.store.memory import MemoryStore


def test_crash_keeps_what_was_acknowledged() -> None:
    store = MemoryStore()
    put(store, key_of(1), 1, b"data")
    store.crash()
    assert content(store, key_of(1)) == b"data"


def test_crash_loses_what_was_never_synced() -> None:
    """A failed sync leaves a change visible, unacknowledged, and gone after the crash; no writes until then."""
    store = MemoryStore()
    put(store, key_of(1), 1, b"old")
    store.faults.fail("sync")
    with pytest.raises(DeviceFailed):
        put(store, key_of(1), 2, b"new")
    assert content(store, key_of(1)) == b"new"
    with pytest.raises(DeviceFailed, match="takes no writes"):
        put(store, key_of(2), 2, b"other")
    store.crash()
    assert content(store, key_of(1)) == b"old"
    put(store, key_of(2), 2, b"other")


def test_crash_ends_open_writers() -> None:
    store = MemoryStore()
    writer = store.create(key_of(1))
    writer.write(b"da")
    store.crash()
    with pytest.raises(DeviceFailed):
        writer.write(b"ta")
    with pytest.raises(DeviceFailed):
        writer.commit(PutRecord(NAME, at(1), "t"), footer_of(b"da"))


def test_torn_write_is_not_served() -> None:
    store = MemoryStore()
    put(store, key_of(1), 1, b"data")
    store.tear(key_of(1), keep=2)
    with pytest.raises(NotFound):
        store.open(key_of(1))
    assert [key for key, _ in store.quarantined] == [key_of(1)]


def test_nth_call_fails() -> None:
    store = MemoryStore()
    store.faults.fail("create", nth=2, times=2)
    put(store, key_of(1), 1)
    for _ in range(2):
        with pytest.raises(DeviceFailed):
            put(store, key_of(2), 1)
    put(store, key_of(2), 1)


def test_full_device_still_deletes() -> None:
    store = MemoryStore()
    put(store, key_of(1), 1, b"data")
    store.faults.full = True
    with pytest.raises(DiskFull):
        put(store, key_of(2), 1)
    store.delete(key_of(1), at(2), NAME)
    store.faults.clear()
    put(store, key_of(2), 1)


def test_slow_device() -> None:
    slept: list[float] = []
    store = MemoryStore()
    store.faults.sleep = slept.append
    store.faults.delay_s = 0.5
    put(store, key_of(1), 1)
    assert slept == [0.5] * 3, "create, commit, sync"
