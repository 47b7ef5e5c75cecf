"""Reads a tar archive as it arrives, one entry at a time: ustar, pax and GNU, in bounded memory.

https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html#tag_20_92_13. Nothing is written to a file system,
and names are returned unchanged: which ones are allowed is up to the caller.

Fault model: an archive may end anywhere, have broken checksums, wrong sizes, and extended headers of any size. All end
in BadArchive before anything of the entry is used. Headers are bounded; the caller bounds the data.
"""

from __future__ import annotations

import asyncio
import re
import tarfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

BLOCK = 512
MAX_EXTENDED = 1 << 20
"""The largest size in bytes of one extended header: a name, or metadata of one file."""
MAX_ITEMS = 1000
"""The largest number of items of an extended header, and of all headers for the entries that follow."""
_MAX_SIZE = 1 << 62
_PIECE = 1 << 16
_SPARSE = "GNU.sparse."
_RECORD = re.compile(rb"([1-9][0-9]{0,6}) ")
_WHOLE = re.compile(r"[0-9]{1,19}", re.ASCII)


class BadArchive(Exception):
    """The bytes are not a tar archive; the message says why."""


@dataclass(frozen=True, slots=True)
class TarEntry:
    """The head of one entry."""

    name: str
    """The name in the archive; bytes that are not UTF-8 become lone surrogates."""
    size: int
    regular: bool
    """Whether it is a file whose bytes are all in the archive."""
    pax: Mapping[str, str]
    """Extended metadata, including those for all entries."""


class TarStream:
    """An archive that is read entry by entry."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        """Read `pieces` of the archive, not compressed, as they arrive."""
        self._pieces = pieces
        self._buffer = bytearray()
        self._left = 0
        """Bytes of the current entry's data that were not read yet."""
        self._padding = 0
        self._global: dict[str, str] = {}

    async def next_entry(self) -> TarEntry | None:
        """Return the next entry's head; None at the end. The rest of the entry before is skipped."""
        local: dict[str, str] = {}
        long_name: str | None = None
        while True:
            # A piece may hold many entries; other requests get their turns in between.
            await asyncio.sleep(0)
            await self._finish_entry()
            header = await self._header(begun=bool(local) or long_name is not None)
            if header is None:
                return None
            if header.type in {tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE}:
                local = parse_pax(await self._extended(header))
            elif header.type == tarfile.XGLTYPE:
                self._global = _merged(self._global, parse_pax(await self._extended(header)))
            elif header.type == tarfile.GNUTYPE_LONGNAME:
                long_name = (await self._extended(header)).split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
            elif header.type == tarfile.GNUTYPE_LONGLINK:
                await self._extended(header)
            else:
                return self._entry(header, self._global | local, long_name)

    def _entry(self, header: tarfile.TarInfo, pax: Mapping[str, str], long_name: str | None) -> TarEntry:
        size = header.size
        if "size" in pax:
            if not _WHOLE.fullmatch(pax["size"]):
                raise BadArchive("the size of an entry is not a number")
            size = int(pax["size"])
        sparse = header.type == tarfile.GNUTYPE_SPARSE or any(name.startswith(_SPARSE) for name in pax)
        # Links and devices have no data, whatever size their header has.
        self._begin(0 if header.type in _WITHOUT_DATA else size)
        name = pax.get("path") or long_name or header.name
        return TarEntry(name, self._left, header.isreg() and not sparse, pax)

    async def read(self) -> bytes:
        """Return more bytes of the current entry; none at its end."""
        if not self._left:
            return b""
        if not self._buffer and not await self._more():
            raise BadArchive("unexpected end of data")
        data = bytes(self._buffer[: min(self._left, _PIECE)])
        del self._buffer[: len(data)]
        self._left -= len(data)
        return data

    async def _header(self, begun: bool) -> tarfile.TarInfo | None:
        block = await self._exactly(BLOCK, may_end=not begun)
        if not block or not block.strip(b"\0"):
            if begun:
                raise BadArchive("unexpected end of data")
            return None
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.HeaderError, ValueError, OverflowError) as error:
            raise BadArchive(f"bad header: {error}") from error
        if not 0 <= header.size < _MAX_SIZE:
            raise BadArchive("the size of an entry is negative or too large")
        return header

    async def _extended(self, header: tarfile.TarInfo) -> bytes:
        if header.size > MAX_EXTENDED:
            raise BadArchive(f"an extended header is longer than {MAX_EXTENDED} bytes")
        self._begin(header.size)
        pieces = []
        while piece := await self.read():
            pieces.append(piece)
        return b"".join(pieces)

    def _begin(self, size: int) -> None:
        if size >= _MAX_SIZE:
            raise BadArchive("the size of an entry is negative or too large")
        self._left = size
        self._padding = -size % BLOCK

    async def _finish_entry(self) -> None:
        while await self.read():
            pass
        padding, self._padding = self._padding, 0
        await self._exactly(padding, may_end=False)

    async def _exactly(self, size: int, may_end: bool) -> bytes:
        """Return exactly so many bytes; none where the archive may end and does."""
        while len(self._buffer) < size:
            if not await self._more():
                if may_end and not self._buffer:
                    return b""
                raise BadArchive("unexpected end of data")
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    async def _more(self) -> bool:
        piece = await anext(self._pieces, b"")
        self._buffer += piece
        return bool(piece)


_WITHOUT_DATA = {tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE}


def _merged(known: dict[str, str], more: dict[str, str]) -> dict[str, str]:
    merged = known | more
    if len(merged) > MAX_ITEMS or sum(map(len, merged)) + sum(map(len, merged.values())) > MAX_EXTENDED:
        raise BadArchive("there are too many global headers")
    return merged


def parse_pax(data: bytes) -> dict[str, str]:
    """Return the records `LENGTH NAME=VALUE` of an extended header. Raises BadArchive for anything else."""
    records: dict[str, str] = {}
    position = 0
    while position < len(data):
        if not data[position]:
            break
        match = _RECORD.match(data, position)
        end = position + int(match[1]) if match else 0
        if match is None or end > len(data) or end <= match.end() or data[end - 1] != 0x0A:
            raise BadArchive("bad extended header")
        name, equals, value = data[match.end() : end - 1].partition(b"=")
        if not equals or not name:
            raise BadArchive("bad extended header")
        records[name.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        if len(records) > MAX_ITEMS:
            raise BadArchive(f"an extended header has more than {MAX_ITEMS} items")
        position = end
    return records
