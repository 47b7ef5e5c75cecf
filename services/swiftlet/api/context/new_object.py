"""What a PUT is going to store, before it is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from swiftlet.api.context.core import Call
from swiftlet.boundaries.bodies import Piece
from swiftlet.model import ObjectInfo
from swiftlet.names import Path


class Incoming(Protocol):
    """The bytes of a new object, from a client or from elsewhere."""

    announced: int | None
    """How many there will be, when that is known."""

    def pieces(self) -> AsyncIterator[Piece]:
        """All of them, in order; raises when they are not what was announced."""
        ...


class Held:
    """The body of an object that is in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.announced: int | None = len(data)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield all bytes as one piece."""
        if self._data:
            yield self._data


@dataclass(slots=True)
class NewObject:
    """What a PUT is going to store; those who prepare it change it until it is stored."""

    call: Call
    path: Path
    content_type: str
    metadata: dict[str, str]
    body: Incoming | None = None
    """The incoming bytes; None until their source is known."""
    source: Path | None = None
    """What it is a copy of; the request's conditions are then the source's."""
    etag: str | None = None
    """The ETag that the body must have, as the client gave it."""
    copied: ObjectInfo | None = None
    """The stored object whose bytes the body is, all of them."""
    keeps_etag: bool = False
    """Whether its ETag is that of what it is copied from, whatever the policy says."""
    sysmeta: dict[str, str] = field(default_factory=dict)
    closers: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    """Called when all is done, whatever became of it."""
    shown: dict[str, str] = field(default_factory=dict)
    """Headers of the answer, beside or instead of the usual ones."""
    is_last: bool = False
    """Whether it comes after all that is stored when its body ends, whatever their timestamps say: an older one is
    never taken for stored before. Small objects get a newer one; a large one has to be sent again (Superseded)."""
