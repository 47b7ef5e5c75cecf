"""The boundary between what a client does and how bytes get to the store and back.

A way makes one attempt at one request for one object. It says what went wrong by the classes of `errors`: above all
whether a failed request may have had its effect (`ConnectionFailed.sent`). Repeating, hedging, continuing in the
middle of a body, dividing into pieces and comparing digests are done above it, the same for every way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from enum import Enum
from typing import Protocol

from swiftlet.client.bodies import Body
from swiftlet.client.digests import Digest
from swiftlet.client.values import Content, ObjectInfo, ObjectRequest, Span, Written


class Stream(Protocol):
    """The body of an answer, which can be read once."""

    @property
    def info(self) -> ObjectInfo:
        """Return the description of the object from the head of the answer."""

    @property
    def is_compared(self) -> bool:
        """Return whether all bytes have been read, and compared with digests with which they were stored."""

    @property
    def digest(self) -> Digest | None:
        """Return the digest of the bytes that were yielded so far, made as the checksum of `info`; None: there is none.

        Who reads has no other pass over them to make.
        """

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return the bytes as they come; ConnectionFailed when they end before all are there."""

    async def close(self) -> None:
        """Let go of what is left unread; no harm if that is nothing."""


MAX_SMALL_BYTES = 256 << 10
"""The largest object in bytes that is one of many; larger ones are moved by themselves."""


class Deletion(Enum):
    """The outcome of one of many deletions."""

    DONE = "done"
    ABSENT = "absent"
    """There was no object."""
    UNCERTAIN = "uncertain"
    """It has to be deleted singly, and may be gone by then."""
    SINGLY = "singly"
    """It has to be deleted singly."""


class Many(Protocol):
    """One attempt at requests for many objects of a container; what it does not do is done by single requests."""

    async def get(self, container: str, names: Sequence[str]) -> list[Content | None]:
        """Return objects with their bytes, compared; None of those that have to be asked for singly."""

    async def head(self, container: str, names: Sequence[str]) -> list[ObjectInfo | None]:
        """Return what the store tells of objects; None of those that have to be asked for singly."""

    async def put(self, container: str, objects: Sequence[tuple[str, bytes]]) -> list[Written | None]:
        """Store objects without metadata; None of those that have to be stored singly."""

    async def delete(self, container: str, names: Sequence[str]) -> list[Deletion]:
        """Delete objects; say of each what has come of it."""


class Way(Protocol):
    """One attempt at a request for an object."""

    @property
    def many(self) -> Many | None:
        """Return what asks for many objects at once; None where each is asked for singly."""

    @property
    def over_http(self) -> int:
        """Return how many requests it has made over HTTP in place of going directly, by choice or by need."""

    async def head(self, request: ObjectRequest) -> ObjectInfo:
        """Return what the store tells of an object."""

    async def get(self, request: ObjectRequest, span: Span | None) -> Stream:
        """Return the object's bytes, or those of a range, once the answer has begun. Close what is returned."""

    async def put(self, request: ObjectRequest, body: Body) -> Written:
        """Store an object; return when it is durable."""

    async def delete(self, request: ObjectRequest) -> None:
        """Delete an object; NotFound when there is none."""

    async def close(self) -> None:
        """Close connections; the way can be used again."""
