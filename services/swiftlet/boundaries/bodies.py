"""The bytes of objects in the memory of the transport, and what digests them on their way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from swiftlet_native import Hasher
from typing_extensions import Buffer

Piece: TypeAlias = bytes | memoryview
"""Bytes of a body that nobody changes any more."""


class BodyBuffer(Protocol):
    """Memory that is read into. As a buffer it is what is not filled yet, to be written to."""

    def __buffer__(self, flags: int, /) -> memoryview:
        """What is not filled yet."""
        ...

    def advance(self, size: int, /) -> int:
        """So many bytes more are filled: how many are not."""
        ...

    def freeze(self, length: int, /) -> Buffer:
        """The first bytes, which nobody writes to any more; BufferError while somebody has this one as a buffer."""
        ...


class Digester(Protocol):
    """Digests a stream beside the event loop."""

    async def update(self, piece: Piece) -> None:
        """Take the next bytes; returns when there is room for more."""
        ...

    async def finish(self) -> None:
        """Returns when all of them are digested."""
        ...

    def close(self) -> None:
        """Nobody asks any more; harmless a second time."""
        ...


class Bodies(Protocol):
    """Memory for the bodies of uploads on their way through this process, limited for all of them together."""

    def buffer(self, size: int) -> BodyBuffer | None:
        """Memory for up to 1 MiB, if there is some now."""
        ...

    def wait_for_buffer(self, size: int, timeout_s: float, then: Callable[[BodyBuffer | None], None]) -> None:
        """Wait for it, first come first served; `then` is called with None when the time is over."""
        ...

    def digester(self, hasher: Hasher) -> Digester:
        """Goes on for this hasher, which nobody else feeds meanwhile."""
        ...
