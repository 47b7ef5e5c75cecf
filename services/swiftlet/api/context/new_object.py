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
    """The announced size in bytes, None when it is not known."""

    def pieces(self) -> AsyncIterator[Piece]:
        """Yield all bytes in order; raises when they differ from what was announced."""
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
    """What a PUT is going to store; preparers change it until it is stored."""

    call: Call
    path: Path
    content_type: str
    metadata: dict[str, str]
    body: Incoming | None = None
    """The incoming bytes; None until their source is known."""
    source: Path | None = None
    """The object that this is a copy of; the request's conditions then apply to it."""
    etag: str | None = None
    """The ETag that the body must have, as sent by the client."""
    copied: ObjectInfo | None = None
    """The stored object of which the body is a complete copy."""
    keeps_etag: bool = False
    """Whether the ETag of the copied object is kept, whatever the policy says."""
    sysmeta: dict[str, str] = field(default_factory=dict)
    closers: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    """Called at the end, whatever the outcome."""
    shown: dict[str, str] = field(default_factory=dict)
    """Headers of the response, in addition to or instead of the usual ones."""
    is_overtaken: bool = False
    """Whether something newer was stored already, or meanwhile; known at the end."""
    is_last: bool = False
    """Whether it has to be newer than all that is stored when its body ends.

    Small objects get a newer timestamp for that; a large one has to be sent again (Superseded).
    """
