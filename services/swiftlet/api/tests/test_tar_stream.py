"""Archives and compressed bodies: any cut of the same bytes gives the same; whatever can grow has an end."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import tarfile
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftlet.api.http import decompression
from swiftlet.api.http.decompression import Allowance, BadCompression, TooLarge, decompressed
from swiftlet.api.http.tar_stream import MAX_EXTENDED, MAX_ITEMS, BadArchive, TarEntry, TarStream, parse_pax

PLENTY = Allowance(1 << 40, 1e6)
_names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=200).filter(
    lambda name: not name.endswith("/")
)
_files = st.lists(st.tuples(_names, st.binary(max_size=2000)), max_size=6)


def tar(files: list[tuple[str, bytes]], form: int = tarfile.PAX_FORMAT) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=form) as archive:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return raw.getvalue()


async def feed(data: bytes, step: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), step):
        yield data[start : start + step]


async def entries_of(data: bytes, step: int = 700, read: bool = True) -> list[tuple[TarEntry, bytes]]:
    stream, found = TarStream(feed(data, step)), []
    while (entry := await stream.next_entry()) is not None:
        pieces = []
        while read and (piece := await stream.read()):
            pieces.append(piece)
        found.append((entry, b"".join(pieces)))
    return found


@given(_files, st.integers(1, 3000), st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]))
async def test_any_cut_gives_the_same(files: list[tuple[str, bytes]], step: int, form: int) -> None:
    found = await entries_of(tar(files, form), step)
    assert [(entry.name, data) for entry, data in found] == files
    assert all(entry.regular and entry.size == len(data) for entry, data in found)
    skipped = await entries_of(tar(files, form), step, read=False)
    assert [entry for entry, _ in skipped] == [entry for entry, _ in found]


@given(st.binary(max_size=3000), st.integers(1, 999))
async def test_anything_is_an_archive_or_none(data: bytes, step: int) -> None:
    with contextlib.suppress(BadArchive):
        await entries_of(data, step)


@given(st.integers(0, 511), st.integers(0, 255))
async def test_a_damaged_header_is_found(index: int, value: int) -> None:
    """Its checksum is over all of its bytes but the checksum's own."""
    data = bytearray(tar([("name", b"data")]))
    if data[index] == value or 148 <= index < 156:
        return
    data[index] = value
    with pytest.raises(BadArchive):
        await entries_of(bytes(data))


@pytest.mark.parametrize("cut", [1, 511, 513, 512 + 600, 512 * 3 + 100])
async def test_an_archive_that_ends_early(cut: int) -> None:
    with pytest.raises(BadArchive, match="unexpected end of data"):
        await entries_of(tar([("a", b"x" * 600), ("b", b"y")])[:cut])


async def test_an_archive_may_lack_its_end() -> None:
    assert len(await entries_of(tar([("a", b"x")])[:1024])) == 1


async def test_an_extended_header_that_is_too_long() -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, MAX_EXTENDED + 1
    with pytest.raises(BadArchive, match="longer than"):
        await entries_of(info.tobuf(tarfile.USTAR_FORMAT) + bytes(4096))


def pax_header(kind: bytes, records: bytes) -> bytes:
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, len(records)
    return info.tobuf(tarfile.USTAR_FORMAT) + records + bytes(-len(records) % 512)


def record(name: str, value: str) -> bytes:
    rest = f" {name}={value}\n".encode()
    size = len(rest) + 1
    while len(str(size)) + len(rest) != size:
        size += 1
    return str(size).encode() + rest


async def test_global_headers_add_up_only_so_far() -> None:
    one = pax_header(tarfile.XGLTYPE, b"".join(record(f"a{n}", "x") for n in range(600)))
    other = pax_header(tarfile.XGLTYPE, b"".join(record(f"b{n}", "x") for n in range(600)))
    [(entry, _)] = await entries_of(one + tar([("a", b"")]))
    assert entry.pax["a599"] == "x"
    with pytest.raises(BadArchive, match="global"):
        await entries_of(one + other + tar([("a", b"")]))


async def test_sizes_of_extended_headers_count() -> None:
    data = tar([("a", b"12345")])
    [(entry, read)] = await entries_of(pax_header(tarfile.XHDTYPE, record("size", "3")) + data)
    assert (entry.size, read) == (3, b"123")
    for size in ("-1", "x", "9" * 19, "9" * 40):
        with pytest.raises(BadArchive, match="size"):
            await entries_of(pax_header(tarfile.XHDTYPE, record("size", size)) + data)


async def test_sparse_files_are_no_regular_ones() -> None:
    header = pax_header(tarfile.XHDTYPE, record("GNU.sparse.major", "1"))
    [(entry, _)] = await entries_of(header + tar([("a", b"12345")]))
    assert not entry.regular


@pytest.mark.parametrize(
    "data",
    [b"x", b"5 a=b", b"99 a=b\n", b"0 a=b\n", b"6 a=b", b"3 \n", b"6 ab\n\n", b"5 =b\n", b"-6 a=b\n", b"2 6 a=b\n"],
)
def test_records_that_are_none(data: bytes) -> None:
    with pytest.raises(BadArchive):
        parse_pax(data)


def test_records() -> None:
    assert parse_pax(record("a", "b=\nc") + record("d", "")) == {"a": "b=\nc", "d": ""}


def test_an_extended_header_has_few_items() -> None:
    assert len(parse_pax(b"".join(record(f"n{number}", "x") for number in range(MAX_ITEMS)))) == MAX_ITEMS
    with pytest.raises(BadArchive, match="more than 1000 items"):
        parse_pax(b"".join(record(f"n{number}", "x") for number in range(MAX_ITEMS + 1)))


async def unpack(data: bytes, kind: str, allowance: Allowance = PLENTY, step: int = 1000) -> bytes:
    return b"".join([piece async for piece in decompressed(feed(data, step), kind, allowance)])


PACKERS = pytest.mark.parametrize(
    ("kind", "pack"), [("", bytes), ("gz", gzip.compress), ("bz2", bz2.compress)], ids=["none", "gz", "bz2"]
)


@PACKERS
@pytest.mark.parametrize("step", [1, 100, 1 << 20])
async def test_what_was_packed_comes_out(kind: str, pack: Any, step: int) -> None:
    data = bytes(range(256)) * 40 + bytes(700_000 if step > 1 else 0)
    assert await unpack(pack(data), kind, step=step) == data
    assert await unpack(pack(data) + pack(b"more"), kind, step=step) == data + b"more"
    assert await unpack(b"", kind) == b""
    if kind:
        assert await unpack(pack(data) + bytes(1000), kind, step=step) == data, "padding of tapes"
        with pytest.raises(BadCompression):
            await unpack(pack(data)[:-1], kind, step=step)
        with pytest.raises(BadCompression):
            await unpack(pack(data) + b"garbage that is none", kind, step=step)


@PACKERS
async def test_no_more_than_allowed(kind: str, pack: Any) -> None:
    data = pack(bytes(3_000_000))
    assert len(await unpack(data, kind, Allowance(3_000_000, 1e6))) == 3_000_000
    with pytest.raises(TooLarge, match="more than 2999999 bytes"):
        await unpack(data, kind, Allowance(2_999_999, 1e6))


async def largest_piece(pieces: AsyncIterator[bytes]) -> int:
    return max([len(piece) async for piece in pieces], default=0)


async def test_pieces_are_small() -> None:
    assert await largest_piece(decompressed(feed(gzip.compress(bytes(5_000_000)), 1 << 20), "gz", PLENTY)) <= 1 << 18


@pytest.mark.parametrize(("kind", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress)])
async def test_a_bomb_takes_neither_memory_nor_long(kind: str, pack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompression, "FREE_BYTES", 1 << 20)
    bomb = pack(bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match="times its size"):
            await largest_piece(decompressed(feed(bomb, 1 << 16), kind, Allowance(1 << 40, 100)))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
