"""Bytes that are no request are answered, and not logged."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from swiftlet.web.app import create_base_app
from swiftlet.web.serve import ServiceRunner


@pytest.mark.parametrize(
    "sent", [b"CONNECT  \r\nHost: x\r\n\r\n", b"CONNECT    \r\n\r\n", b"GET / HTTP/1.1\r\nSecret\x00: x\r\n\r\n"]
)
async def test_an_answer_comes_and_the_log_stays_clean(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    runner = ServiceRunner(create_base_app("proxy", trust_request_ids=False))
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        reader, writer = await asyncio.open_connection(*runner.addresses[0][:2])
        writer.write(sent)
        async with asyncio.timeout(10):
            line = await reader.readline()
        assert int(line.split()[1]) in {400, 404, 405}
        writer.close()
    finally:
        await runner.cleanup()
    assert "Traceback" not in caplog.text
    assert "Secret" not in caplog.text
