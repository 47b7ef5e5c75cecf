"""The hot path of one proxy process: grants for what is asked, renewed while they are used, withdrawn with changes.

Fault model: the API may refuse, fail or not know at any time: then nothing is granted, and requests take the ordinary
way. The front's thread may die: then the process has to end, for nobody would let clients in. Between a decision and
its grant something may be withdrawn: then the decision does not count.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web
from swiftlet_native import Front

from swiftlet.api.core import SwiftApi
from swiftlet.hot_path.deciding import Deciding
from swiftlet.hot_path.door import Connection, Door
from swiftlet.hot_path.records import TAKE_S, Records
from swiftlet.hot_path.routes import Peers, Routes
from swiftlet.hot_path.withdrawing import withdrawal
from swiftlet.names import HashPath
from swiftlet.placement.rings import Rings
from swiftlet.web.app import METRICS

RENEW_S = 0.25
"""Seconds between looks at which grants are used."""
MAX_RENEWED = 1000
"""Grants that one look renews; others have to be decided anew after they have ended."""
SMALL_BYTES = 64 * 1024
"""Of larger objects the front answers HEAD alone."""
_PLAIN = frozenset(
    {
        "content-type",
        "etag",
        "last-modified",
        "x-timestamp",
        "accept-ranges",
        "content-length",
        "x-trans-id",
        "x-openstack-request-id",
        "date",
        "content-encoding",
        "content-disposition",
        "content-language",
        "cache-control",
        "expires",
    }
)
"""Headers of answers that the front could have given; besides `x-object-meta-`."""


@dataclass(frozen=True, slots=True)
class HotSettings:
    """How the front treats connections; seconds."""

    hash_path: HashPath
    client_timeout_s: float
    answer_timeout_s: float


class HotPath:
    """Implements `swiftlet.web.front.FrontDoor`, and is what an application tells of its answers."""

    def __init__(self, app: web.Application, api: SwiftApi, rings: Rings, peers: Peers, settings: HotSettings) -> None:
        """For the API of `app`; nothing begins before `open`."""
        self._app = app
        self._api = api
        self._rings = rings
        self._peers = peers
        self._settings = settings
        self._deciding = Deciding(api)
        self._withdrawn = 0
        self._running: _Running | None = None
        self._granting: set[asyncio.Task[None]] = set()
        app.on_response_prepare.append(self._withdraw_before)
        api.containers.changed = api.accounts.changed = self.withdraw

    def open(self, server: web.Server, sockets: Sequence[socket.socket], keepalive_s: float) -> None:
        """Accept connections."""
        settings, hash_path = self._settings, self._settings.hash_path
        front = Front(
            (hash_path.prefix, hash_path.suffix),
            keepalive_s=keepalive_s,
            client_timeout_s=settings.client_timeout_s,
            answer_timeout_s=settings.answer_timeout_s,
        )
        routes = Routes(front, self._rings, self._peers, self._api.objects.is_suppressed)
        self._running = _Running(front, routes, Door(front, self), Records(front, self._app[METRICS]))
        self._running.door.open(server, sockets)

    async def leave(self) -> None:
        """Accept no more connections."""
        if self._running is not None:
            await self._running.door.leave()

    async def close(self, patience_s: float) -> None:
        """Finish what the front answers, within that time, and end what is left."""
        running, self._running = self._running, None
        for task in self._granting:
            task.cancel()
        await asyncio.gather(*self._granting, return_exceptions=True)
        if running is not None:
            await running.door.close(patience_s)
            running.records.take()

    def status(self) -> dict[str, int]:
        """The status report's `hot_path`: connections at the front, and requests that it has answered."""
        running = self._running
        if running is None:
            return {"connections": 0, "answered": 0}
        running.records.take()
        return {"connections": running.front.open(), "answered": running.records.total}

    def withdraw(self, account: str | None) -> None:
        """End all grants in an account, or all, and let no decision count that is under way."""
        self._withdrawn += 1
        if self._running is not None:
            self._running.front.withdraw(None if account is None else account.encode())

    async def _withdraw_before(self, request: web.Request, _response: web.StreamResponse) -> None:
        self.ended(request)

    def ended(self, request: web.BaseRequest) -> None:
        """Withdraw what a request may have changed."""
        ended = withdrawal(request.method, request.rel_url.raw_path, request.rel_url.raw_query_string)
        if ended is not None:
            self.withdraw(ended.account)

    def answered(
        self, connection: Connection, request: web.BaseRequest, response: web.StreamResponse, raw: bytes
    ) -> None:
        """Grant what was asked, if the front could answer it, and give the connection back."""
        running = self._running
        if running is None or response.status != 200 or not is_plain(request, response):
            return
        asked = Front.asked(raw)
        if asked is None:
            return
        if running.front.has(*asked):
            running.door.give_back(connection)
        else:
            task = asyncio.ensure_future(self._grant_to(running, connection, asked))
            self._granting.add(task)
            task.add_done_callback(self._granting.discard)

    async def _grant_to(self, running: _Running, connection: Connection, asked: tuple[bytes, bytes]) -> None:
        if await self._grant(running, *asked):
            running.door.give_back(connection)

    async def _grant(self, running: _Running, token: bytes, prefix: bytes) -> bool:
        withdrawn = self._withdrawn
        grant = await self._deciding.decide(token.decode("ascii"), prefix.decode("ascii"))
        if grant is None or withdrawn != self._withdrawn:
            return False
        running.routes.tell(grant.policy)
        return running.front.grant(token, prefix, grant.container, grant.policy, grant.valid_s)

    async def renew(self) -> None:
        """Renew what is used, for ever."""
        while True:
            await asyncio.sleep(RENEW_S)
            running = self._running
            if running is not None:
                running.routes.refresh()
                for token, prefix in running.front.used()[:MAX_RENEWED]:
                    await self._grant(running, token, prefix)

    async def record(self) -> None:
        """Write down what the front answers, for ever; RuntimeError when its thread has died."""
        while True:
            await asyncio.sleep(TAKE_S)
            if self._running is not None:
                self._running.records.take()
                check_alive(self._running.front)


@dataclass(frozen=True, slots=True)
class _Running:
    """From `open` to `close`."""

    front: Front
    routes: Routes
    door: Door
    records: Records


def check_alive(front: Front) -> None:
    """RuntimeError when nobody accepts connections any more: a successor of this process will."""
    if not front.is_alive():
        raise RuntimeError("the thread that accepts connections has died")


def is_plain(request: web.BaseRequest, response: web.StreamResponse) -> bool:
    """Whether the answer is to a read of an object that the front could answer."""
    size = response.content_length
    small = size is not None and (size <= SMALL_BYTES or request.method == "HEAD")
    names = (name.lower() for name in response.headers)
    return small and all(name in _PLAIN or name.startswith("x-object-meta-") for name in names)
