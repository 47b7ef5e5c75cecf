"""Digests of bodies that are sent at the same time, side by side.

MD5 of eight streams takes little longer than that of one where the processor has lanes for it. What comes while pieces
are being digested is digested next, together; a single upload does not wait for others.
"""

from __future__ import annotations

import asyncio
from functools import partial

from swiftlet_native import Hasher

from swiftlet.client.concurrency import in_thread
from swiftlet.client.digests import Buffer

TOGETHER = 8
"""Pieces that are digested at a time: as many as a processor has lanes."""
_Waiting = tuple[Hasher, Buffer, "asyncio.Future[None]"]


class Hashing:
    """Digests pieces in a thread, for one event loop."""

    def __init__(self) -> None:
        """Begin with nothing to do."""
        self._waiting: list[_Waiting] = []
        self._running: asyncio.Task[None] | None = None

    def update(self, hasher: Hasher, data: Buffer) -> asyncio.Future[None]:
        """Return what is done when a hasher has taken in a piece; the next one of it is given after that.

        Until then the bytes are read, also if nobody waits any more.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((hasher, data, done))
        if self._running is None:
            self._running = asyncio.ensure_future(self._run())
        return done

    async def _run(self) -> None:
        taken: list[_Waiting] = []
        try:
            while self._waiting:
                # Uploads that go on at the same moment have their pieces here after one turn of the loop.
                await asyncio.sleep(0)
                taken, self._waiting = self._waiting[:TOGETHER], self._waiting[TOGETHER:]
                try:
                    await in_thread(partial(Hasher.update_each, [(hasher, data) for hasher, data, _ in taken]))
                except Exception as error:  # whatever it is, it is the error of those who wait
                    for done in _open(taken):
                        done.set_exception(error)
                for done in _open(taken):
                    done.set_result(None)
        finally:
            self._running = None
            left, self._waiting = [*taken, *self._waiting], []
            # Only at the end of the event loop there are any.
            for done in _open(left):
                done.cancel()


def _open(waiting: list[_Waiting]) -> list[asyncio.Future[None]]:
    """Return what somebody still waits for."""
    return [done for _, _, done in waiting if not done.done()]
