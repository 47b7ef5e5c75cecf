"""Requests whose end two servers could see at different places: refused with the connection closed, never split.

Fault model: another server stands before the proxy and hands on what it does not understand; whoever sends the
request wants a part of its body to be taken for a request of somebody else. Every shape carries such a part, which
would store `c/smuggled`. Sent as bytes over bare sockets.
"""

from __future__ import annotations

import asyncio
import re

import pytest

from swiftlet.api.tests.proxy import Proxy
from swiftlet.placement.tests.cluster import ACCOUNT

ANSWER_WITHIN_S = 20.0
LAST = b"GET /healthcheck HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
"""Behind everything, so that the server closes when it has understood all of it."""


def hidden(proxy: Proxy) -> bytes:
    """The request that nobody must ever see as one."""
    token = proxy.token["X-Auth-Token"]
    return (
        f"PUT /v1/{ACCOUNT}/c/smuggled HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {token}\r\nContent-Length: 0\r\n\r\n"
    ).encode()


async def converse(proxy: Proxy, sent: bytes) -> list[int]:
    """The statuses of all answers until the server closes; TimeoutError when it does not."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    received = bytearray()
    try:
        writer.write(sent + LAST)
        async with asyncio.timeout(ANSWER_WITHIN_S):
            while chunk := await reader.read(65_536):
                received += chunk
    except ConnectionResetError:
        assert received, "closed without a word"
    finally:
        writer.close()
    return [int(status) for status in re.findall(rb"HTTP/\d\.\d (\d{3}) ", received)]


def request(proxy: Proxy, lines: list[bytes], body: bytes, method: bytes = b"PUT", version: bytes = b"1.1") -> bytes:
    """A request to `c/front` with these header lines, each with its own line end if it has one."""
    token = proxy.token["X-Auth-Token"].encode()
    head = b"%b /v1/%b/c/front HTTP/%b\r\nHost: x\r\n" % (method, ACCOUNT.encode(), version)
    ended = b"".join(line if line.endswith((b"\n", b"\r")) else line + b"\r\n" for line in lines)
    return head + b"X-Auth-Token: " + token + b"\r\n" + ended + b"\r\n" + body


LENGTHS = {
    "length and chunked": [b"Content-Length: 5", b"Transfer-Encoding: chunked"],
    "chunked and length": [b"Transfer-Encoding: chunked", b"Content-Length: 5"],
    "length 0 and chunked": [b"Content-Length: 0", b"Transfer-Encoding: chunked"],
    "two lengths": [b"Content-Length: 5", b"Content-Length: 0"],
    "two lengths, the same": [b"Content-Length: 5", b"Content-Length: 5"],
    "two lengths in one": [b"Content-Length: 5, 0"],
    "a length with a sign": [b"Content-Length: +5"],
    "a negative length": [b"Content-Length: -5"],
    "a length in hex": [b"Content-Length: 0x5"],
    "a length with a space": [b"Content-Length: 0 5"],
    "a length with an underscore": [b"Content-Length: 0_5"],
    "a length of other digits": ["Content-Length: \u0665".encode()],
    "an empty length": [b"Content-Length:"],
    "a length over 64 bits": [b"Content-Length: 18446744073709551621"],
    "a space before the colon, length": [b"Content-Length : 5"],
    "a space before the colon": [b"Transfer-Encoding : chunked"],
    "a tab before the colon": [b"Transfer-Encoding\t: chunked"],
    "a folded encoding": [b"Transfer-Encoding:\r\n chunked"],
    "a folded header": [b"X-Object-Meta-A: b\r\n c", b"Content-Length: 5"],
    "a folded first header": [b" X: a", b"Content-Length: 5"],
    "an unknown encoding": [b"Transfer-Encoding: xchunked"],
    "an unknown encoding last": [b"Transfer-Encoding: chunked, gzip"],
    "chunked twice": [b"Transfer-Encoding: chunked, chunked"],
    "chunked in two headers": [b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"],
    "two encodings": [b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"],
    "a vertical tab": [b"Transfer-Encoding: \x0bchunked"],
    "a quoted encoding": [b'Transfer-Encoding: "chunked"'],
    "a NUL in the encoding": [b"Transfer-Encoding: chunked\x00"],
    "a bare CR in a header": [b"X-Object-Meta-A: b\rTransfer-Encoding: chunked", b"Content-Length: 5"],
    "a bare LF behind a header": [b"Content-Length: 5\nTransfer-Encoding: chunked\n"],
    "a NUL in a name": [b"Content-Length\x00: 5"],
    "a name with a bracket": [b"Content-Length[: 5"],
    "no name": [b": chunked", b"Content-Length: 5"],
    "no colon": [b"Transfer-Encoding chunked", b"Content-Length: 5"],
}


@pytest.mark.parametrize("shape", LENGTHS)
async def test_lengths_that_can_be_read_in_two_ways(proxy: Proxy, shape: str) -> None:
    body = b"0\r\n\r\n" + hidden(proxy)
    statuses = await converse(proxy, request(proxy, LENGTHS[shape], body))
    assert statuses == [400], shape
    assert (await proxy.call("HEAD", "c/smuggled")).status == 404
    assert (await proxy.call("HEAD", "c/front")).status == 404


CHUNKS = {
    "in hex with its prefix": b"0x3\r\nabc\r\n",
    "with a sign": b"+3\r\nabc\r\n",
    "negative": b"-3\r\nabc\r\n",
    "empty": b"\r\nabc\r\n",
    "no number": b"zz\r\nabc\r\n",
    "with an underscore": b"0_3\r\nabc\r\n",
    "over 64 bits": b"10000000000000003\r\nabc\r\n",
    "over 128 bits": b"f" * 33 + b"\r\nabc\r\n",
    "a space before": b" 3\r\nabc\r\n",
    "ended by LF": b"3\nabc\r\n",
    "LF in an extension": b"3;a\nb\r\nabc\r\n",
    "data longer than said": b"2\r\nabc\r\n",
    "data without an end": b"3\r\nabc0\r\n\r\n",
    "data ended by LF": b"3\r\nabc\n",
}


@pytest.mark.parametrize("shape", CHUNKS)
async def test_chunks_that_can_be_read_in_two_ways(proxy: Proxy, shape: str) -> None:
    body = CHUNKS[shape] + b"0\r\n\r\n" + hidden(proxy)
    statuses = await converse(proxy, request(proxy, [b"Transfer-Encoding: chunked"], body))
    assert statuses == [400], shape
    assert (await proxy.call("HEAD", "c/smuggled")).status == 404
    assert (await proxy.call("HEAD", "c/front")).status == 404


async def test_an_encoding_is_not_for_http_1_0(proxy: Proxy) -> None:
    body = b"0\r\n\r\n" + hidden(proxy)
    statuses = await converse(proxy, request(proxy, [b"Transfer-Encoding: chunked"], body, version=b"1.0"))
    assert statuses[1:] in ([], [200]), statuses
    assert (await proxy.call("HEAD", "c/smuggled")).status == 404


@pytest.mark.parametrize("lines", [[b"X-Auth-Token: bad"], [b"Expect: 100-continue"], [b"Expect: something"]])
@pytest.mark.parametrize("method", [b"PUT", b"POST", b"FROB", b"GET", b"DELETE"])
async def test_the_body_of_a_refused_request_is_not_a_request(proxy: Proxy, method: bytes, lines: list[bytes]) -> None:
    """Answered before its body was read: that is thrown away or the connection closed."""
    inner = hidden(proxy)
    sent = request(proxy, [*lines, b"Content-Length: %d" % len(inner)], inner, method)
    sent = sent.replace(b"/c/front", b"/missing/front")
    statuses = await converse(proxy, sent)
    final = [status for status in statuses if status != 100]
    assert final[0] >= 400 or method == b"POST"
    assert final[1:] in ([], [200]), statuses
    assert (await proxy.call("HEAD", "c/smuggled")).status == 404


async def test_bodies_that_nobody_asked_for_are_not_requests(proxy: Proxy) -> None:
    inner = hidden(proxy)
    for method in (b"GET", b"HEAD", b"DELETE", b"OPTIONS", b"COPY", b"POST"):
        for lines, body in (
            ([b"Content-Length: %d" % len(inner)], inner),
            ([b"Transfer-Encoding: chunked"], b"%x\r\n%b\r\n0\r\n\r\n" % (len(inner), inner)),
        ):
            statuses = await converse(proxy, request(proxy, lines, body, method))
            assert statuses[1:] in ([], [200]), (method, statuses)
            assert (await proxy.call("HEAD", "c/smuggled")).status == 404, method


async def test_trailers_are_no_headers(proxy: Proxy) -> None:
    stranger = b"X-Auth-Token: " + proxy.token["X-Auth-Token"].encode()
    sent = request(proxy, [b"Transfer-Encoding: chunked", b"Trailer: X-Auth-Token, X-Object-Meta-A"], b"")
    sent = sent.replace(stranger + b"\r\n", b"")
    sent += b"3\r\nabc\r\n0\r\n" + stranger + b"\r\nX-Object-Meta-A: b\r\n\r\n"
    assert (await converse(proxy, sent))[0] == 401
    assert (await proxy.call("HEAD", "c/front")).status == 404


async def test_an_upgrade_is_not_begun(proxy: Proxy) -> None:
    """Bytes behind an upgrade would be handed through by a server before us."""
    for lines in (
        [b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"],
        [b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Key: YWJj"],
    ):
        assert await converse(proxy, request(proxy, lines, b"", b"GET")) == [404]
    statuses = await converse(proxy, b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert statuses[0] >= 400


async def test_what_is_malformed_is_not_logged(proxy: Proxy, caplog: pytest.LogCaptureFixture) -> None:
    """It may hold a token, and would fill the log."""
    caplog.set_level("DEBUG")
    token = proxy.token["X-Auth-Token"].encode()
    assert await converse(proxy, request(proxy, [b"X-Auth-Token: \x00" + token], b"")) == [400]
    assert await converse(proxy, b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n") == [400]
    assert "malformed request, 400" in caplog.text
    assert "Traceback" not in caplog.text
    assert proxy.token["X-Auth-Token"] not in caplog.text


async def test_whole_requests_behind_one_another_are_answered_in_order(proxy: Proxy) -> None:
    """What is refused above is not refused for being more than one."""
    first = request(proxy, [b"Transfer-Encoding: Chunked"], b"3;x=y\r\nabc\r\n0\r\n\r\n")
    assert await converse(proxy, first + hidden(proxy)) == [201, 201, 200]
    assert (await proxy.call("GET", "c/front")).body == b"abc"
    assert (await proxy.call("HEAD", "c/smuggled")).status == 200


@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE"])
@pytest.mark.parametrize("target", ["o#x", "o?format=json#x", "#", "o%20#"])
async def test_a_raw_number_sign_names_nothing(proxy: Proxy, method: str, target: str) -> None:
    """A parser of URLs cuts the target there, and the request would be about another object."""
    assert (await proxy.call("PUT", "c/o", data=b"kept")).status == 201
    head = f"{method} /v1/{ACCOUNT}/c/{target} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n"
    sent = f"{head}X-Auth-Token: {proxy.token['X-Auth-Token']}\r\n\r\n".encode()
    assert await converse(proxy, sent) == [400, 200]
    kept = await proxy.call("GET", "c/o")
    assert (kept.status, kept.body) == (200, b"kept")
