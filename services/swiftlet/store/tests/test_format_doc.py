"""`docs/data-on-disk.md` against the plain store: files and set hashes made by hand from its tables."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from swiftlet_native import xxh3_64, xxh3_128

from swiftlet.errors import NotFound
from swiftlet.model import ObjectKey
from swiftlet.store.plain import PlainStore
from swiftlet.timestamp import Timestamp

DIGEST = bytes.fromhex("0123456789abcdef0123456789abcdef")
KEY = ObjectKey(0, 1, DIGEST)
ETAG = "5d41402abc4b2a76b9719d911017c592"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "objects/0/1/def" / DIGEST.hex()).mkdir(parents=True)
    return tmp_path


@pytest.fixture
def store(root: Path) -> Iterator[PlainStore]:
    store = PlainStore(root)
    yield store
    store.close()


def stamp(seconds: int, nonce: int = 0) -> int:
    return (seconds * 100_000) << 14 | nonce


def lay(root: Path, name: str, kind: int, data: bytes, fields: dict[str, Any]) -> Path:
    """A file as the page describes it."""
    text = json.dumps(fields, separators=(",", ":")).encode()
    head = struct.pack(">8sHHIQQQ", b"SWLTPLN1", 1, kind, len(text), len(data), xxh3_64(data), xxh3_64(text))
    assert len(head) == 40
    path = root / "objects/0/1/def" / DIGEST.hex() / name
    path.write_bytes(data + text + head + struct.pack(">Q", xxh3_64(head)))
    return path


def lay_data(root: Path) -> Path:
    fields = {
        "timestamp": stamp(1_700_000_000, 0x1FF),
        "name": "/a/c/o",
        "content_type": "text/plain",
        "etag": ETAG,
        "metadata": {"X-Object-Meta-A": "1"},
        "sysmeta": {"s": "2"},
        "of a later release": True,
    }
    return lay(root, "1700000000.00000_01ff.data", 1, b"hello", fields)


def test_a_data_file_made_by_hand_is_an_object(root: Path, store: PlainStore) -> None:
    lay_data(root)
    with store.open(KEY) as reader:
        info = reader.info
        assert reader.read(0, 100) == b"hello"
    assert (info.name, info.size, info.etag, info.content_type) == ("/a/c/o", 5, ETAG, "text/plain")
    assert (info.metadata, info.sysmeta) == ({"X-Object-Meta-A": "1"}, {"s": "2"})
    store.verify(KEY)


def test_a_post_made_by_hand_replaces_metadata_and_type(root: Path, store: PlainStore) -> None:
    lay_data(root)
    moment = stamp(1_700_000_001)
    fields = {"timestamp": moment, "metadata": {"b": "2"}, "content_type": "x/y", "content_type_timestamp": moment}
    lay(root, "1700000001.00000_0000.meta", 3, b"", fields)
    info = store.stat(KEY)
    assert (info.metadata, info.content_type, info.sysmeta) == ({"b": "2"}, "x/y", {"s": "2"})


def test_a_tombstone_made_by_hand_deletes(root: Path, store: PlainStore) -> None:
    lay_data(root)
    lay(root, "1700000002.00000_0000.ts", 2, b"", {"timestamp": stamp(1_700_000_002), "name": "/a/c/o"})
    with pytest.raises(NotFound) as caught:
        store.stat(KEY)
    assert caught.value.timestamp == Timestamp(stamp(1_700_000_002))


def test_a_suffix_has_the_hash_that_the_page_says(root: Path, store: PlainStore) -> None:
    lay_data(root)
    moment = stamp(1_700_000_001)
    fields = {"timestamp": moment, "metadata": {}, "content_type": None, "content_type_timestamp": 0}
    lay(root, "1700000001.00000_0000.meta", 3, b"", fields)
    term = struct.pack(">16sBQQQ", DIGEST, 1, stamp(1_700_000_000, 0x1FF), moment, 0)
    assert len(term) == 41
    assert store.suffix_hashes(0, 1) == {"def": xxh3_128(term)}


def test_what_the_store_writes_has_the_layout_of_the_page(root: Path, store: PlainStore) -> None:
    with pytest.raises(NotFound):
        store.delete(KEY, Timestamp(stamp(1_700_000_002)), "/a/c/o")
    [name] = os.listdir(root / "objects/0/1/def" / DIGEST.hex())
    written = (root / "objects/0/1/def" / DIGEST.hex() / name).read_bytes()
    by_hand = lay(root, name, 2, b"", {"timestamp": stamp(1_700_000_002), "name": "/a/c/o"}).read_bytes()
    assert (name, written) == ("1700000002.00000_0000.ts", by_hand)
    assert sorted(os.listdir(root)) == [".lock", "objects", "quarantined", "tmp"]
