"""A server that ends while a stream is being opened leaves no traceback in its log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from swiftlet.servers.containers.row_stream import RowStreams
from swiftlet.servers.objects.sync_stream import SyncEndpoint, one_by_one
from swiftlet.transport.sync_wire import Request

Close = Callable[[web.Application], Awaitable[None]]


async def silent(_device: str, _request: Request) -> bytes:
    raise AssertionError("nothing is asked")


def sync_streams(app: web.Application) -> Close:
    streams = SyncEndpoint(None, one_by_one(silent), "/stream")
    streams.add_to(app)
    return streams.close


def row_streams(app: web.Application) -> Close:
    streams = RowStreams({}, {}, None)
    app.router.add_route("GET", "/stream", streams.handle)
    app.on_shutdown.append(streams.close)
    return streams.close


class Opening:
    """A server whose answers to the requests that begin streams wait for `go_on`."""

    def __init__(self, add_streams: Callable[[web.Application], Close]) -> None:
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()
        self.app = web.Application()
        self.app.on_response_prepare.append(self._wait)
        self.close_streams = add_streams(self.app)
        self.server = TestServer(self.app)

    async def _wait(self, _request: web.Request, _response: web.StreamResponse) -> None:
        self.reached.set()
        await self.go_on.wait()


@pytest.mark.parametrize("add_streams", [sync_streams, row_streams])
async def test_a_server_may_end_while_a_stream_is_opened(
    add_streams: Callable[[web.Application], Close], caplog: pytest.LogCaptureFixture
) -> None:
    opening = Opening(add_streams)
    await opening.server.start_server()
    async with aiohttp.ClientSession() as session:
        opened = asyncio.create_task(session.ws_connect(opening.server.make_url("/stream")))
        await opening.reached.wait()
        await opening.close_streams(opening.app)
        opening.go_on.set()
        await (await opened).close()
    await opening.server.close()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
