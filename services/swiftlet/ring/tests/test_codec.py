"""Files and chunks: round trips, and damage of every kind."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftlet.ring import Ring, RingBuilder, RingError, RingFormatError, codec
from swiftlet.ring.tests.clusters import HOUR, builders, grid


def small(seed: int = 0) -> RingBuilder:
    builder = grid(2, 1, 2, part_power=4, replicas=2, seed=seed)
    builder.rebalance(HOUR)
    return builder


@given(builders(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_round_trips(builder: RingBuilder, remove: bool) -> None:
    builder.rebalance(HOUR)
    ring = builder.ring
    assert codec.decode(codec.encode(ring)) == ring
    assert codec.join(list(reversed(codec.chunks(ring, 50_000)))) == ring
    if remove:
        builder.remove_device(0)
        builder.set_replicas(2)
    twin = codec.decode_builder(codec.encode_builder(builder))
    assert codec.encode_builder(twin) == codec.encode_builder(builder)
    assert twin.ring == ring
    assert twin.rebalance(HOUR + 9) == builder.rebalance(HOUR + 9)
    assert twin.ring == builder.ring


def test_a_builder_without_a_ring_round_trips() -> None:
    builder = grid(2, 1, 1, replicas=2)
    twin = codec.decode_builder(codec.encode_builder(builder))
    assert twin.devices == builder.devices
    assert not twin.has_ring
    with pytest.raises(RingError, match="rebalance first"):
        _ = twin.ring


def test_every_flipped_bit_is_found() -> None:
    data = codec.encode(small().ring)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RingFormatError):
            codec.decode(bytes(damaged))


def test_every_flipped_bit_of_a_chunk_is_found() -> None:
    first, *rest = codec.chunks(small().ring)
    for bit in range(len(first) * 8):
        damaged = bytearray(first)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RingFormatError):
            codec.join([bytes(damaged), *rest])


@pytest.mark.parametrize("kind", ["ring", "builder", "chunk"])
def test_every_truncation_is_found(kind: str) -> None:
    builder = small()
    data = {
        "ring": codec.encode(builder.ring),
        "builder": codec.encode_builder(builder),
        "chunk": codec.chunks(builder.ring)[0],
    }[kind]
    readers: dict[str, Callable[[bytes], object]] = {
        "ring": codec.decode,
        "builder": codec.decode_builder,
        "chunk": lambda part: codec.join([part]),
    }
    read = readers[kind]
    for size in range(len(data)):
        with pytest.raises(RingFormatError):
            read(data[:size])
    with pytest.raises(RingFormatError):
        read(data + b"\0")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "does not begin with SWLTRING"),
        (b"\x1f\x8b" + b"\0" * 100, "does not begin with SWLTRING"),
        (b"SWLTRING\x00\x01", "truncated"),
        (b"SWLTRING\x00\x09" + b"\0" * 100, "ring file has format version 9, this program understands 1: run"),
        (b"SWLTRING\x00\x00" + b"\0" * 100, "ring file has format version 0, this program understands 1: run"),
        (b"SWLTRING\x00\x01\x00\x01" + b"\0" * 100, "digest does not match"),
    ],
)
def test_messages_say_what_is_wrong(data: bytes, message: str) -> None:
    with pytest.raises(RingFormatError, match=message):
        codec.decode(data)


def test_builders_and_chunks_of_another_version_are_refused() -> None:
    with pytest.raises(RingFormatError, match="the builder file has format version 2, this program understands 1"):
        codec.decode_builder(b"SWLTRING\x00\x02" + b"\0" * 100)
    with pytest.raises(RingFormatError, match="the ring chunk has format version 2, this program understands 1"):
        codec.join([b"SWLTCHNK\x00\x02" + b"\0" * 100])


def resealed(data: bytes, *, kind: int = 1, size: int | None = None, body: bytes | None = None) -> bytes:
    """A file with a changed head or body and a digest that fits."""
    start = struct.pack(
        ">8sHHQ", b"SWLTRING", 1, kind, size if size is not None else struct.unpack(">Q", data[12:20])[0]
    )
    body = data[36:] if body is None else body
    return start + xxhash.xxh3_128_digest(start + body) + body


def test_sealed_nonsense_is_refused() -> None:
    data = codec.encode(small().ring)
    assert codec.decode(resealed(data)) == small().ring
    with pytest.raises(RingFormatError, match="not a ring file but a builder"):
        codec.decode(codec.encode_builder(small()))
    with pytest.raises(RingFormatError, match="not a builder file but a ring"):
        codec.decode_builder(data)
    with pytest.raises(RingFormatError, match="impossible size"):
        codec.decode(resealed(data, size=1 << 60))
    with pytest.raises(RingFormatError, match="decompressed"):
        codec.decode(resealed(data, size=7))
    with pytest.raises(RingFormatError, match="decompressed"):
        codec.decode(resealed(data, body=b"x" * 500))


def test_mixed_and_partial_sets_are_refused() -> None:
    rings = [grid(3, 1, 2, part_power=12, seed=seed) for seed in (1, 2)]
    for builder in rings:
        builder.rebalance(HOUR)
    one, two = (codec.chunks(builder.ring, 60_000) for builder in rings)
    assert len(one) == len(two) > 2
    assert codec.join(one) == rings[0].ring
    with pytest.raises(RingFormatError, match="different rings"):
        codec.join([two[0], *one[1:]])
    with pytest.raises(RingFormatError, match="chunks instead of"):
        codec.join(one[1:])
    with pytest.raises(RingFormatError, match="twice"):
        codec.join([one[0], *one])
    with pytest.raises(RingFormatError, match="no chunks"):
        codec.join([])


def test_the_number_of_chunks_depends_on_the_shape_only() -> None:
    def cut(zones: int, replicas: float) -> list[bytes]:
        builder = grid(zones, 2, 3, part_power=12, replicas=replicas)
        builder.rebalance(HOUR)
        return codec.chunks(builder.ring, 12_500)

    few, many = cut(2, 3), cut(6, 3)
    assert len(few) == len(many) == codec.chunk_count(12, 3, 12_500) > 1
    assert all(len(piece) <= 12_500 for piece in many)
    assert codec.chunk_count(18, 3) == 2
    assert codec.chunk_count(10, 2.5) == codec.chunk_count(10, 3) == 1


def test_too_many_devices_for_the_chunks_are_reported() -> None:
    with pytest.raises(RingError, match="limit_bytes 10 is too small"):
        codec.chunks(small().ring, 10)


def test_files_are_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "object.ring"
    old, new = small(1).ring, small(2).ring
    codec.save(old, path)
    assert codec.load(path) == old

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        codec.save(new, path)
    monkeypatch.undo()
    assert codec.load(path) == old
    codec.save(new, path)
    assert codec.load(path) == new
    assert [entry.name for entry in tmp_path.iterdir()] == ["object.ring"]
    codec.save_builder(small(), tmp_path / "object.builder")
    assert codec.load_builder(tmp_path / "object.builder").ring == small().ring


def test_load_of_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        codec.load(tmp_path / "nothing")


def test_equal_rings_are_equal_bytes() -> None:
    ring = small().ring
    assert isinstance(ring, Ring)
    assert codec.encode(ring) == codec.encode(codec.decode(codec.encode(ring)))
