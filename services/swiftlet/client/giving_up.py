"""PUTs that are given up only when they can have no effect any more.

A store may read a request whose client has closed the connection: all of it can be in the buffers of the sockets, and a
busy server comes to it late, even after it has answered a DELETE of the same name that was sent afterwards. So closing
the connection undoes a PUT only while a part of its body has not been sent: an incomplete body is never stored. A PUT
whose body is all on its way is waited for, and can be deleted then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from swiftlet.client.bodies import Body
from swiftlet.client.digests import Buffer
from swiftlet.client.errors import LocalError
from swiftlet.client.objects import Objects
from swiftlet.client.progress import Meter
from swiftlet.client.values import ObjectRequest, Written

ANSWER_S = 10.0
"""Seconds that the answer to a PUT which is given up is waited for, when the whole body was sent. What the store does
after them is left over."""


async def put_or_give_up(objects: Objects, request: ObjectRequest, body: Body, meter: Meter) -> Written:
    """Store a body of known size; cancelled, return only when the PUT has had its effect or can have none."""
    watched = _Watched(body)
    putting = asyncio.ensure_future(objects.put(request, watched, meter))
    try:
        return await asyncio.shield(putting)
    except asyncio.CancelledError:
        watched.is_given_up = True
        try:
            if watched.is_sent:
                await asyncio.wait([putting], timeout=ANSWER_S)
        finally:
            putting.cancel()
            await asyncio.gather(putting, return_exceptions=True)
        raise


class _Watched:
    """A body that tells whether all of it was taken to be sent, and is not sent again once it is given up."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self.is_sent = False
        self.is_given_up = False

    @property
    def size(self) -> int | None:
        """That of the body."""
        return self._body.size

    @property
    def is_repeatable(self) -> bool:
        """Whether it can be sent again."""
        return self._body.is_repeatable and not self.is_given_up

    @property
    def reads_once(self) -> bool:
        """As the body."""
        return self._body.reads_once

    async def chunks(self) -> AsyncGenerator[Buffer, None]:
        """Yield the bytes; LocalError when the upload was given up."""
        if self.is_given_up:
            raise LocalError("the upload was given up")
        self.is_sent = False
        taken = 0
        async with aclosing(self._body.chunks()) as chunks:
            async for data in chunks:
                taken += len(data)
                # Before it is sent: a connection that is closed sends what it has been given first.
                self.is_sent = taken == self.size
                yield data

    async def matches(self, etag: str) -> bool:
        """As the body does."""
        return await self._body.matches(etag)
