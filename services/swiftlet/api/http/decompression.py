"""Decompresses bodies in pieces, with a limit on their decompressed size.

Fault model: a few bytes may decompress to terabytes. Never more than one piece is made at a time, and the output is cut
off where it exceeds the total limit, or the multiple of the bytes received so far.
"""

from __future__ import annotations

import asyncio
import bz2
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

FREE_BYTES = 64 << 20
"""Any input may decompress to so many bytes."""
_PIECE = 1 << 18
_GZIP = 31


class BadCompression(Exception):
    """The bytes are not compressed as they should be, or end too early."""


class TooLarge(Exception):
    """The decompressed size is over a limit, which the message names."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits of what a body may decompress to: in bytes, and as a multiple of the bytes received."""

    total_bytes: int
    ratio: float

    def check(self, taken: int, made: int) -> None:
        """Raise TooLarge if so many bytes must not result from so many received bytes."""
        if made > self.total_bytes:
            raise TooLarge(f"the archive expands to more than {self.total_bytes} bytes")
        if made > FREE_BYTES and made > taken * self.ratio:
            raise TooLarge(f"the archive expands to more than {self.ratio:g} times its size")


class _Machine(Protocol):
    """The decompressor of one stream."""

    def feed(self, data: bytes) -> bytes:
        """Return at most one piece of output; all of `data` is taken in, and empty `data` asks for the rest."""
        ...

    @property
    def ended(self) -> bool:
        """Return whether the stream is complete."""
        ...

    @property
    def rest(self) -> bytes:
        """Return the bytes after the end of the stream."""
        ...

    @property
    def hungry(self) -> bool:
        """Return whether there is no more output without more input."""
        ...


class _Gzip:
    def __init__(self) -> None:
        self._machine = zlib.decompressobj(_GZIP)
        self._full = False

    def feed(self, data: bytes) -> bytes:
        made = self._machine.decompress(self._machine.unconsumed_tail + data, _PIECE)
        self._full = len(made) == _PIECE
        return made

    @property
    def ended(self) -> bool:
        return self._machine.eof

    @property
    def rest(self) -> bytes:
        return self._machine.unused_data

    @property
    def hungry(self) -> bool:
        return not self._full and not self._machine.unconsumed_tail


class _Bzip2:
    def __init__(self) -> None:
        self._machine = bz2.BZ2Decompressor()

    def feed(self, data: bytes) -> bytes:
        return self._machine.decompress(data, _PIECE)

    @property
    def ended(self) -> bool:
        return self._machine.eof

    @property
    def rest(self) -> bytes:
        return self._machine.unused_data

    @property
    def hungry(self) -> bool:
        return self._machine.needs_input


_MACHINES: dict[str, Callable[[], _Machine]] = {"gz": _Gzip, "bz2": _Bzip2}


async def decompressed(pieces: AsyncIterator[bytes], kind: str, allowance: Allowance) -> AsyncIterator[bytes]:
    """Yield the decompressed `pieces`, by `kind` ("gz", "bz2" or "" for none), also if several streams follow each
    other.

    Raises BadCompression and TooLarge.
    """
    taken = made = 0
    machine: _Machine | None = None
    async for piece in pieces:
        taken += len(piece)
        if not kind:
            allowance.check(taken, taken)
            yield piece
            continue
        data = piece
        while data or (machine is not None and not machine.ended and not machine.hungry):
            machine = machine or _MACHINES[kind]()
            if machine.ended:
                data = data.lstrip(b"\0")
                if data:
                    machine = _MACHINES[kind]()
                continue
            try:
                out = await asyncio.to_thread(machine.feed, data)
            except (zlib.error, OSError, EOFError) as error:
                raise BadCompression(str(error)) from error
            data = machine.rest if machine.ended else b""
            made += len(out)
            allowance.check(taken, made)
            if out:
                yield out
    if machine is not None and not machine.ended:
        raise BadCompression("the compressed data end too early")
