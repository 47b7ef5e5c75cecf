"""What Python sees of connections whose TLS the front ends, and what is counted of handshakes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from swiftlet.front.tests.conftest import PATIENCE_S, FrontedProxy, until

pytestmark = pytest.mark.parametrize("scheme", ["https"], indirect=True)


def count(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"swiftlet_tls_{name}_total", labels) or 0.0


async def test_a_request_has_the_scheme_and_the_addresses_of_its_client(
    fronted: FrontedProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []
    ended = fronted.front.ended

    def note(request: web.BaseRequest) -> None:
        handler: Any = request.protocol
        about = {"remote": request.remote, "scheme": request.scheme, "secure": request.secure, "url": str(request.url)}
        seen.append(about | {"peer": handler.peername, "ours": handler.sockname})
        ended(request)

    monkeypatch.setattr(fronted.front, "ended", note)
    reader, writer = await fronted.connect()
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: objects.example.org\r\n\r\n")
    async with asyncio.timeout(PATIENCE_S):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    await until(lambda: bool(seen))
    assert seen[-1] == {
        "remote": "127.0.0.1",
        "scheme": "https",
        "secure": True,
        "url": "https://objects.example.org/healthz",
        "peer": writer.get_extra_info("sockname"),
        "ours": writer.get_extra_info("peername"),
    }
    writer.close()


async def test_handshakes_are_counted(fronted: FrontedProxy) -> None:
    before = count("handshakes", kind="full"), count("handshake_failures", reason="plain")
    _, plain = await asyncio.open_connection("127.0.0.1", fronted.proxy.port)
    plain.write(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
    _, writer = await fronted.connect()
    running = fronted.running

    def counted() -> tuple[float, float]:
        # The tasks of a service do this all the time.
        running.take_records()
        return count("handshakes", kind="full"), count("handshake_failures", reason="plain")

    await until(lambda: counted() == (before[0] + 1, before[1] + 1))
    plain.close()
    writer.close()
