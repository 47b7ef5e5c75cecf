"""Set hashes as `docs/data-on-disk.md` specifies them, made by hand; the store's files are checked in its crate."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from swiftlet_native import xxh3_64, xxh3_128

from swiftlet.errors import NotFound
from swiftlet.model import ObjectKey, PostRecord, PutFooter, PutRecord
from swiftlet.store.native import NativeStore
from swiftlet.timestamp import Timestamp

DIGEST = bytes.fromhex("0123456789abcdef0123456789abcdef")
KEY = ObjectKey(0, 1, DIGEST)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[NativeStore]:
    store = NativeStore(tmp_path)
    yield store
    store.close()


def stamp(seconds: int, nonce: int = 0) -> int:
    return (seconds * 100_000) << 14 | nonce


def hash_of(kind: int, timestamp: int, post: int = 0, content_type: int = 0) -> bytes:
    term = struct.pack(">16sBQQQ", DIGEST, kind, timestamp, post, content_type)
    assert len(term) == 41
    return xxh3_128(term)


def test_a_suffix_has_the_hash_that_the_page_says(store: NativeStore) -> None:
    written, posted, deleted = stamp(1_700_000_000, 0x1FF), stamp(1_700_000_001), stamp(1_700_000_002)
    writer = store.create(KEY)
    writer.write(b"hello")
    writer.commit(
        PutRecord("/a/c/o", Timestamp(written), "text/plain", {}, {}),
        PutFooter(5, "5d41402abc4b2a76b9719d911017c592", xxh3_64(b"hello")),
    )
    assert store.suffix_hashes(0, 1) == {"def": hash_of(1, written)}
    store.post(KEY, PostRecord(Timestamp(posted), {}))
    assert store.suffix_hashes(0, 1) == {"def": hash_of(1, written, posted)}
    store.post(KEY, PostRecord(Timestamp(posted + 1), {}, "x/y", Timestamp(posted + 1)))
    assert store.suffix_hashes(0, 1) == {"def": hash_of(1, written, posted + 1, posted + 1)}
    store.delete(KEY, Timestamp(deleted), "/a/c/o")
    assert store.suffix_hashes(0, 1) == {"def": hash_of(2, deleted)}
    with pytest.raises(NotFound) as caught:
        store.stat(KEY)
    assert caught.value.timestamp == Timestamp(deleted)
