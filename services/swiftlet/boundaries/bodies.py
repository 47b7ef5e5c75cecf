"""The memory of the transport for the bytes of objects, and digests that are computed while bodies pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from swiftlet_native import Hasher
from typing_extensions import Buffer

Piece: TypeAlias = bytes | memoryview
"""Bytes of a body that nobody changes any more."""


class BodyBuffer(Protocol):
    """Memory that a body is read into. Its buffer is the part that is not filled yet."""

    def __buffer__(self, flags: int, /) -> memoryview:
        """Return the part that is not filled yet."""
        ...

    def advance(self, size: int, /) -> int:
        """Count more bytes as filled; return how many are not filled yet."""
        ...

    def freeze(self, length: int, /) -> Buffer:
        """Return the first bytes, which nobody writes to any more. Raises BufferError while the buffer is in use."""
        ...


class Digester(Protocol):
    """Digests a stream in parallel with the event loop."""

    async def update(self, piece: Piece) -> None:
        """Take the next bytes; return when there is room for more."""
        ...

    async def finish(self) -> None:
        """Return when all bytes are digested."""
        ...

    def close(self) -> None:
        """Stop, when nobody needs the digest any more; a second call does nothing."""
        ...


class Bodies(Protocol):
    """Memory for the bodies of uploads on their way through this process, limited for all of them together."""

    def buffer(self, size: int) -> BodyBuffer | None:
        """Return memory for up to 1 MiB, or None if there is none now."""
        ...

    def wait_for_buffer(self, size: int, timeout_s: float, then: Callable[[BodyBuffer | None], None]) -> None:
        """Wait for memory, in the order of calls; `then` is called with it, or with None when the time is over."""
        ...

    def digester(self, hasher: Hasher) -> Digester:
        """Return a digester for this hasher, which nothing else may feed meanwhile."""
        ...
