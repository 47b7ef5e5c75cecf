"""Rings and builders as bytes: in a file, and cut into chunks that fit ConfigMaps.

A file is a header and a gzip stream. Header, big-endian: magic (8 bytes), format version (2), kind (2: 1 ring,
2 builder), size of the unpacked body in bytes (8), xxh3-128 over the header so far and the gzip stream (16).
Unpacked body of a ring: size of the JSON part (4), JSON (version, part_power, replica_count, devices by id),
then the assignment rows, 16 bits little-endian per slot. Of a builder: size of the JSON part (4), JSON
(settings and devices), the hour of the last move per partition (32 bits little-endian each), then the ring as
of the last rebalance in its own file format; the last two are missing before the first rebalance.

A chunk is a header and a piece of a ring file. Header, big-endian: magic (8), format version (2), index (2),
number of chunks (2), xxh3-128 of the whole file (16), xxh3-128 over the header so far and the piece (16). Pieces of
different rings don't join: their whole-file digests differ.

The digests find damage, not forgery: who may write the file or the ConfigMap may write any ring.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import asdict
from math import ceil
from pathlib import Path
from typing import Any

import xxhash

from swiftlet.formats import other_version
from swiftlet.ring.builder import RingBuilder
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device, RingError, RingFormatError, check_shape, row_lengths

FORMAT = 1
"""The format version that is written, and the only one that is read."""
DEFAULT_CHUNK_LIMIT = 900_000
"""The usual largest size of a chunk in bytes; a ConfigMap holds 1 MiB."""
DEVICE_ALLOWANCE = 200_000
"""The size in bytes of compressed devices that the number of chunks allows for: several thousand devices."""

_MAGIC = b"SWLTRING"
_CHUNK_MAGIC = b"SWLTCHNK"
_RING, _BUILDER = 1, 2
_HEADER = struct.Struct(">8sHHQ")
_CHUNK_HEADER = struct.Struct(">8sHHH16s")
_DIGEST_SIZE = 16
_JSON_SIZE = struct.Struct(">I")
_LEVEL = 6
_MAX_RATIO = 1100
"""The largest possible ratio of unpacked to packed size, a little above deflate's 1032: a header that claims more is
wrong.
"""


def encode(ring: Ring) -> bytes:
    """Return a ring in the form of a file; equal rings give equal bytes with one version of zlib."""
    head = {
        "version": ring.version,
        "part_power": ring.part_power,
        "replica_count": ring.replica_count,
        "devices": _devices_to_json(ring.devices),
    }
    return _pack(_RING, head, [_little(row) for row in ring.rows])


def decode(data: bytes) -> Ring:
    """Return the ring in a file's bytes. Raises RingFormatError, which says what is wrong with them."""
    head, body = _unpack(_RING, "ring", data)
    try:
        part_power, replicas = int(head["part_power"]), float(head["replica_count"])
        check_shape(part_power, replicas)
        rows = []
        offset = 0
        for length in row_lengths(part_power, replicas):
            rows.append(_from_little("H", body[offset : offset + 2 * length]))
            offset += 2 * length
        if offset != len(body):
            raise RingFormatError("the size of the assignment table does not match the head of the ring")
        return Ring(int(head["version"]), part_power, replicas, _devices_from_json(head["devices"]), rows)
    except (KeyError, TypeError, ValueError, RingError) as error:
        raise _contents("ring", error) from error


def save(ring: Ring, path: str | os.PathLike[str]) -> None:
    """Write a ring file so that a crash leaves the old file or the new one, never a mixture."""
    _write(Path(path), encode(ring))


def load(path: str | os.PathLike[str]) -> Ring:
    """Read a ring file. Raises OSError when it can't be read, and RingFormatError when it is not a ring."""
    return decode(Path(path).read_bytes())


def encode_builder(builder: RingBuilder) -> bytes:
    """Return a builder's whole state in the form of a file."""
    head = {
        "part_power": builder.part_power,
        "replicas": builder.replicas,
        "min_part_hours": builder.min_part_hours,
        "overload": builder.overload,
        "seed": builder.seed,
        "version": builder.version,
        "devices": _devices_to_json(builder.devices),
    }
    tables = [_little(builder.moved_at), encode(builder.ring)] if builder.has_ring else []
    return _pack(_BUILDER, head, tables)


def decode_builder(data: bytes) -> RingBuilder:
    """Return the builder in a file's bytes. Raises RingFormatError, which says what is wrong with them."""
    head, body = _unpack(_BUILDER, "builder", data)
    try:
        part_power = int(head["part_power"])
        check_shape(part_power, float(head["replicas"]))
        hours = 4 << part_power
        return RingBuilder.restore(
            part_power=part_power,
            replicas=float(head["replicas"]),
            min_part_hours=int(head["min_part_hours"]),
            overload=float(head["overload"]),
            seed=int(head["seed"]),
            version=int(head["version"]),
            devices=_devices_from_json(head["devices"]),
            moved_at=_from_little("I", body[:hours]),
            ring=decode(body[hours:]) if body else None,
        )
    except (KeyError, TypeError, ValueError, RingError) as error:
        raise _contents("builder", error) from error


def save_builder(builder: RingBuilder, path: str | os.PathLike[str]) -> None:
    """Write a builder file so that a crash leaves the old file or the new one, never a mixture."""
    _write(Path(path), encode_builder(builder))


def load_builder(path: str | os.PathLike[str]) -> RingBuilder:
    """Read a builder file. Raises OSError when it can't be read, and RingFormatError when it is not a builder."""
    return decode_builder(Path(path).read_bytes())


def is_builder(data: bytes) -> bool:
    """Return whether a file's bytes claim to be a builder rather than a ring."""
    return data[: len(_MAGIC)] == _MAGIC and int.from_bytes(data[10:12], "big") == _BUILDER


def chunk_count(part_power: int, replicas: float, limit_bytes: int = DEFAULT_CHUNK_LIMIT) -> int:
    """Return how many chunks a ring of this shape is always cut into: enough for one that can't be
    compressed at all.
    """
    check_shape(part_power, replicas)
    room = limit_bytes - _CHUNK_HEADER.size - _DIGEST_SIZE
    if room < 1:
        raise RingError(f"limit_bytes {limit_bytes} is too small for a chunk")
    slots = ceil(replicas) << part_power
    return max(1, ceil((2 * slots * 1.001 + DEVICE_ALLOWANCE) / room))


def chunks(ring: Ring, limit_bytes: int = DEFAULT_CHUNK_LIMIT) -> list[bytes]:
    """Cut a ring into `chunk_count` chunks of at most `limit_bytes`. Raises RingError if there are too many devices."""
    count = chunk_count(ring.part_power, ring.replica_count, limit_bytes)
    data = encode(ring)
    size = ceil(len(data) / count)
    if size + _CHUNK_HEADER.size + _DIGEST_SIZE > limit_bytes or count > 0xFFFF:
        raise RingError(f"limit_bytes {limit_bytes}: the ring of {len(data)} bytes does not fit into {count} chunks")
    whole = xxhash.xxh3_128_digest(data)
    result = []
    for index in range(count):
        head = _CHUNK_HEADER.pack(_CHUNK_MAGIC, FORMAT, index, count, whole)
        piece = data[index * size : (index + 1) * size]
        result.append(head + xxhash.xxh3_128_digest(head + piece) + piece)
    return result


def join(pieces: Sequence[bytes]) -> Ring:
    """Return the ring in a complete set of chunks, in any order. Raises RingFormatError for any other set of bytes."""
    if not pieces:
        raise RingFormatError("no chunks of a ring were given")
    parts: dict[int, bytes] = {}
    sets: set[tuple[int, bytes]] = set()
    for piece in pieces:
        index, count, whole, data = _open_chunk(piece)
        sets.add((count, whole))
        if index in parts:
            raise RingFormatError(f"chunk {index} is present twice")
        parts[index] = data
    if len(sets) > 1:
        raise RingFormatError(
            "the chunks belong to different rings: they are being updated, or chunks of several rings were mixed"
        )
    count, whole = sets.pop()
    if sorted(parts) != list(range(count)):
        raise RingFormatError(f"the set has {len(parts)} chunks instead of {count}")
    joined = b"".join(parts[index] for index in range(count))
    if xxhash.xxh3_128_digest(joined) != whole:
        raise RingFormatError("the digest over all chunks does not match")
    return decode(joined)


def _open_chunk(piece: bytes) -> tuple[int, int, bytes, bytes]:
    head_size = _CHUNK_HEADER.size
    _check_start(piece, _CHUNK_MAGIC, head_size + _DIGEST_SIZE, "ring chunk")
    head, digest, data = (
        piece[:head_size],
        piece[head_size : head_size + _DIGEST_SIZE],
        piece[head_size + _DIGEST_SIZE :],
    )
    if xxhash.xxh3_128_digest(head + data) != digest:
        raise RingFormatError("a ring chunk is damaged or truncated: its digest does not match")
    _, _, index, count, whole = _CHUNK_HEADER.unpack(head)
    return index, count, whole, data


def _check_start(data: bytes, magic: bytes, size: int, what: str) -> None:
    if data[: len(magic)] != magic[: len(data)] or not data:
        raise RingFormatError(f"this is not a {what}: it does not begin with {magic.decode()}")
    if len(data) < size:
        raise RingFormatError(f"the {what} is truncated: it has {len(data)} bytes, and its header alone has {size}")
    version = int.from_bytes(data[8:10], "big")
    if version != FORMAT:
        raise RingFormatError(other_version(f"the {what}", version, FORMAT))


def _pack(kind: int, head: dict[str, Any], tables: list[bytes]) -> bytes:
    text = json.dumps(head, separators=(",", ":"), sort_keys=True).encode()
    raw = b"".join([_JSON_SIZE.pack(len(text)), text, *tables])
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, 31)
    body = packer.compress(raw) + packer.flush()
    start = _HEADER.pack(_MAGIC, FORMAT, kind, len(raw))
    return start + xxhash.xxh3_128_digest(start + body) + body


def _unpack(kind: int, what: str, data: bytes) -> tuple[dict[str, Any], bytes]:
    start_size = _HEADER.size
    _check_start(data, _MAGIC, start_size + _DIGEST_SIZE, f"{what} file")
    start, digest, body = (
        data[:start_size],
        data[start_size : start_size + _DIGEST_SIZE],
        data[start_size + _DIGEST_SIZE :],
    )
    if xxhash.xxh3_128_digest(start + body) != digest:
        raise RingFormatError(f"the {what} file is damaged or truncated: its digest does not match")
    _, _, found, size = _HEADER.unpack(start)
    if found != kind:
        raise RingFormatError(
            f"this is not a {what} file but a {({_RING: 'ring', _BUILDER: 'builder'}).get(found, found)} file"
        )
    if size > _MAX_RATIO * len(body):
        raise RingFormatError(f"the {what} file states an impossible size of {size} bytes")
    unpacker = zlib.decompressobj(31)
    try:
        raw = unpacker.decompress(body, size + 1)
    except zlib.error as error:
        raise RingFormatError(f"the {what} file can't be decompressed: {error}") from error
    if len(raw) != size or not unpacker.eof or unpacker.unused_data:
        raise RingFormatError(f"the decompressed {what} file does not have the {size} bytes that its header states")
    if size < _JSON_SIZE.size:
        raise RingFormatError(f"the {what} file is empty")
    end = _JSON_SIZE.size + _JSON_SIZE.unpack(raw[: _JSON_SIZE.size])[0]
    try:
        head = json.loads(raw[_JSON_SIZE.size : end])
    except ValueError as error:
        raise _contents(what, error) from error
    if not isinstance(head, dict):
        raise RingFormatError(f"the head of the {what} file is not a JSON object")
    return head, raw[end:]


def _contents(what: str, error: Exception) -> RingFormatError:
    reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return RingFormatError(f"the contents of the {what} file are wrong: {reason}")


def _devices_to_json(devices: Sequence[Device | None]) -> list[dict[str, Any] | None]:
    return [asdict(device) if device is not None else None for device in devices]


def _devices_from_json(items: Any) -> list[Device | None]:
    if not isinstance(items, list):
        raise RingFormatError("'devices' is not a list")
    return [Device(**item) if item is not None else None for item in items]


def _little(table: array[int]) -> bytes:
    if sys.byteorder == "big":
        table = table[:]
        table.byteswap()
    return table.tobytes()


def _from_little(code: str, data: bytes) -> array[int]:
    table: array[int] = array(code)
    table.frombytes(data)
    if sys.byteorder == "big":
        table.byteswap()
    return table


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
