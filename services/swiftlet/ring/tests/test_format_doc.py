"""`docs/data-on-disk.md` against the ring codec: a ring file, its builder and its chunks, byte by byte."""

from __future__ import annotations

import gzip
import json
import struct
from math import ceil

import xxhash

from swiftlet.ring import codec
from swiftlet.ring.builder import RingBuilder
from swiftlet.ring.tests.test_codec import small

DEVICE = {
    "id": 0,
    "name": "n1",
    "host": "node1",
    "port": 6200,
    "device": "sda",
    "region": "r1",
    "zone": "z1",
    "node": "n1",
    "weight": 100.0,
}


def ring_file(head: dict[str, object], tables: bytes, kind: int = 1) -> bytes:
    """A file as the page describes it."""
    text = json.dumps(head).encode()
    body = struct.pack(">I", len(text)) + text + tables
    start = struct.pack(">8sHHQ", b"SWLTRING", 1, kind, len(body))
    assert len(start) == 20
    packed = gzip.compress(body)
    return start + xxhash.xxh3_128_digest(start + packed) + packed


def test_a_ring_file_made_by_hand_is_a_ring() -> None:
    # 1.5 replicas of 4 partitions: a row of four, a row of the two lowest.
    head = {"version": 3, "part_power": 2, "replica_count": 1.5, "devices": [DEVICE, None, {**DEVICE, "id": 2}]}
    ring = codec.decode(ring_file(head, struct.pack("<4H2H", 0, 2, 0, 2, 2, 0)))
    assert (ring.version, ring.part_power, ring.replica_count) == (3, 2, 1.5)
    assert [[device.id for device in ring.primaries(partition)] for partition in range(4)] == [[0, 2], [2, 0], [0], [2]]
    assert ring.partition_of(bytes([0b10_000000]) + bytes(15)) == 2


def test_a_builder_file_has_the_parts_of_the_page() -> None:
    builder: RingBuilder = small()
    data = codec.encode_builder(builder)
    body = gzip.decompress(data[36:])
    magic, version, kind, size = struct.unpack(">8sHHQ", data[:20])
    assert (magic, version, kind, size) == (b"SWLTRING", 1, 2, len(body))
    end = 4 + int.from_bytes(body[:4], "big")
    fields = {"version", "part_power", "replicas", "min_part_hours", "overload", "seed", "devices"}
    assert set(json.loads(body[4:end])) == fields
    hours = 4 << builder.part_power
    assert list(struct.unpack(f"<{hours // 4}I", body[end : end + hours])) == list(builder.moved_at)
    assert body[end + hours :] == codec.encode(builder.ring)


def test_chunks_are_cut_as_the_page_says() -> None:
    ring, limit = small().ring, 60_000
    whole = codec.encode(ring)
    found = codec.chunks(ring, limit)
    slots = ceil(ring.replica_count) << ring.part_power
    assert len(found) == max(1, ceil((2 * slots * 1.001 + 200_000) / (limit - 46)))
    size = ceil(len(whole) / len(found))
    for index, chunk in enumerate(found):
        piece = whole[index * size : (index + 1) * size]
        head = struct.pack(">8sHHH16s", b"SWLTCHNK", 1, index, len(found), xxhash.xxh3_128_digest(whole))
        assert chunk == head + xxhash.xxh3_128_digest(head + piece) + piece
