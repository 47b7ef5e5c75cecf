"""An HTTP proxy before the API server that does to a client what networks and busy servers do.

Plain HTTP towards the client, TLS towards the API server; answers are passed on as they come, so watches work. It
keeps a list of what was written through it, leases apart. Faults: `cut` ends all connections in the middle of what they
carry, `busy` answers every n-th request with 429, `delay_s` holds each back.

It runs in a thread with a loop of its own: kopf cancels every task of its loop that began after it, and so would end
a proxy in the same loop before the operator has given its lease back.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from pathlib import Path
from weakref import WeakSet

import aiohttp
import yaml
from aiohttp import web

from swiftlet_operator.tests.apiserver import ApiServer

_HOP = frozenset({"transfer-encoding", "connection", "content-length", "host"})


class Middleman:
    """One proxy; `kubeconfig` leads through it."""

    def __init__(self, server: ApiServer, kubeconfig: Path, token: str | None = None) -> None:
        """Clients log in with `token`, the administrator's when there is none."""
        self.kubeconfig = kubeconfig
        self.writes: list[str] = []
        self.reads = 0
        self.refused = 0
        self.busy = 0
        self.delay_s = 0.0
        self._server = server
        self._token = token or server.token
        self._requests: list[web.Request] = []
        self._count = 0
        self._upstream: WeakSet[asyncio.Transport] = WeakSet()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Middleman]:
        """On a port of its own."""
        started: Future[str] = Future()
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)), name="middleman")
        thread.start()
        try:
            self._write(await asyncio.wrap_future(started))
            yield self
        finally:
            if started.exception() is None:
                self._loop.call_soon_threadsafe(self._ended.set)
            await asyncio.to_thread(thread.join)

    async def _serve(self, started: Future[str]) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        context = ssl.create_default_context(cafile=str(self._server.ca_file))
        connector = aiohttp.TCPConnector(ssl=context, limit=0, force_close=True)
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._pass)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        try:
            async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as self._session:
                await runner.setup()
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                host, port = runner.addresses[0][:2]
                started.set_result(f"http://{host}:{port}")
                await self._ended.wait()
                self._abort()
                await runner.cleanup()
            await self._abandon()
        except BaseException as error:
            if not started.done():
                started.set_exception(error)
            raise

    def cut(self) -> int:
        """End every connection that carries something; how many."""
        return asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result()

    async def _cut(self) -> int:
        return self._abort()

    def _abort(self) -> int:
        found = [request.transport for request in self._requests if request.transport is not None]
        for transport in found:
            transport.abort()
        return len(found)

    async def _abandon(self) -> None:
        """End the connections to the API server that are still being closed, as the loop ends and would leave them."""
        for transport in list(self._upstream):
            transport.abort()
        for _ in range(3):
            await asyncio.sleep(0)

    def _write(self, url: str) -> None:
        config = yaml.safe_load(self._server.kubeconfig.read_text("utf-8"))
        config["clusters"][0]["cluster"] = {"server": url}
        config["users"][0]["user"] = {"token": self._token}
        self.kubeconfig.write_text(yaml.safe_dump(config), "utf-8")

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        self._count += 1
        if self.busy and self._count % self.busy == 0:
            self.refused += 1
            return web.Response(status=429, text="too many requests", headers={"Retry-After": "0"})
        await asyncio.sleep(self.delay_s)
        if request.method == "GET":
            self.reads += 1
        elif "/leases" not in request.path:
            self.writes.append(f"{request.method} {request.path}")
        self._requests.append(request)
        try:
            return await self._forward(request)
        finally:
            self._requests.remove(request)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        url = f"{self._server.url}{request.path_qs}"
        timeout = aiohttp.ClientTimeout(total=None)
        body = await request.read()
        try:
            async with self._session.request(
                request.method, url, headers=headers, data=body or None, timeout=timeout
            ) as answer:
                if answer.connection is not None and answer.connection.transport is not None:
                    self._upstream.add(answer.connection.transport)
                kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
                response = web.StreamResponse(status=answer.status, headers=kept)
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
                return response
        except aiohttp.ClientConnectorError:
            return web.Response(status=503, text="the API server is away")
        except (aiohttp.ClientConnectionResetError, ConnectionResetError):
            # The client's side was cut, or the client went away.
            return web.Response(status=500)
