"""Which containers' descriptions have changed lately, so that proxies need not ask about each of them again and again.

A change is noted after its commit and before it is answered, with a number. Whoever has asked before names the last
number that he knows, and gets the containers that were noted since. `docs/design/2026-11-26-listing-changes.md` says
what may be concluded from that.

Fault model: the process may end at any moment; the next one has another epoch, so nobody takes its numbers for those of
the former. Who asks seldom, after more changes than are kept, is told that he has missed some.
"""

from __future__ import annotations

import secrets
from collections import deque
from itertools import islice

from aiohttp import web

from swiftlet.model import DatabaseId, DatabaseKind
from swiftlet.servers.shared.json_requests import Answer
from swiftlet.transport import listing_wire as wire

KEPT = 4096
"""The number of changes that are kept."""


class ChangeLog:
    """The latest changes of containers on all devices of this process. Used from one event loop."""

    def __init__(self, kept: int = KEPT) -> None:
        """Begin a new epoch without changes, and keep as many as `kept`."""
        self._epoch = secrets.token_hex(8)
        self._noted: deque[str] = deque(maxlen=kept)
        self._last = 0

    def note(self, id: DatabaseId) -> None:
        """Note that something else than rows may have changed in a database."""
        if id.kind is DatabaseKind.CONTAINER:
            self._last += 1
            self._noted.append(id.digest.hex())

    def since(self, epoch: str, number: int) -> tuple[str, int, list[str] | None]:
        """Return the epoch, the number of the last change, and the digests of the containers that were noted after
        `number`: None where that can't be told.
        """
        missing = self._last - number
        if epoch != self._epoch or not 0 <= missing <= len(self._noted):
            return self._epoch, self._last, None
        return self._epoch, self._last, list(islice(self._noted, len(self._noted) - missing, None))

    async def changes(self, _request: web.Request, fields: Answer) -> Answer:
        """Answer with `epoch`, `number` and `containers`, as `since` does."""
        epoch, number, containers = self.since(*wire.change_from_wire(fields))
        return wire.changes_to_wire(epoch, number, containers)
