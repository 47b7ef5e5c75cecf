"""The body of a large upload: read without the HTTP server where possible, through it otherwise.

Fault model: as in `swiftlet.api.http.body`, with the same limits; `swiftlet.web.direct_read` says what becomes of the
connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from swiftlet.api.http.body import Body
from swiftlet.api.http.problems import CLIENT_GONE, ApiError
from swiftlet.boundaries.bodies import Bodies, Piece
from swiftlet.web.direct_read import DirectRead, begin_direct_read


class DirectBody:
    """The body of one request whose size is announced."""

    def __init__(self, body: Body, bodies: Bodies) -> None:
        """Read `body`, which has checked the announced size, and of which nothing has been read."""
        assert body.announced is not None
        self._body = body
        self._bodies = bodies
        self._direct_read: DirectRead | None = None
        self._size = body.announced
        self.announced: int | None = body.announced

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield pieces as they arrive; ends after the last byte or raises as `Body.pieces`, and 503 without memory."""
        body = self._body
        await body.say_continue()
        beginning, self._direct_read = begin_direct_read(body.request, self._size, self._bodies, body.timeout_s)
        if beginning:
            body.size += len(beginning)
            yield beginning
        if self._direct_read is None:
            async for piece in body.pieces():
                yield piece
            return
        try:
            while (rest := await self._direct_read.piece(body.timeout_s)) is not None:
                yield rest
        except TimeoutError as error:
            raise body.stands_still() from error
        except ConnectionError as error:
            raise ApiError(CLIENT_GONE, "the client closed the connection in the middle of the body") from error

    async def close(self) -> None:
        """Stop reading; harmless at the end, and a second time."""
        if self._direct_read is not None:
            self._direct_read.leave()
