"""Opens the WebSocket of a stream, for streams of rows and of sync questions."""

from __future__ import annotations

import asyncio

from aiohttp import web

SEND_S = 10.0
"""Seconds within which a peer has to read an answer."""


async def open_socket(request: web.Request, max_message: int) -> tuple[web.WebSocketResponse, asyncio.Transport]:
    """Answer the request that begins a stream; return the socket and the connection below it.

    A socket that has not been opened can't be closed either, so a stream counts as open only from here on. Raises
    ConnectionResetError when the peer has gone away meanwhile, which aiohttp passes over without a traceback.
    """
    socket = web.WebSocketResponse(max_msg_size=max_message, compress=False, timeout=SEND_S)
    await socket.prepare(request)
    if request.transport is None:
        raise ConnectionResetError("the peer closed the connection before its stream was open")
    return socket, request.transport
