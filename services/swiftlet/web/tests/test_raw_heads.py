"""Heads with bytes beyond ASCII: what becomes of them, where they are looked for, and that bodies stay as they are."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from swiftlet.web.raw_heads import MAX_BODY, Boundary, encoded, plain_name
from swiftlet.web.serve import ServiceRunner

UTF8 = "ä€".encode()


@pytest.mark.parametrize(
    ("head", "written"),
    [
        (b"GET /%b?a=%b HTTP/1.1\r\nHost: x\r\n\r\n" % (UTF8, UTF8), None),
        (b"GET / HTTP/1.1\r\nX-Meta-%b: %b\r\n\r\n%b" % (UTF8, UTF8, UTF8), None),
        (b"GET /\xff HTTP/1.1\r\n\r\n", b"GET /%FF HTTP/1.1\r\n\r\n"),
        # No more than the lines that are whole.
        (b"GET /%b HTTP/1.1\r\nX-%b" % (UTF8, UTF8), b"GET /%%C3%%A4%%E2%%82%%AC HTTP/1.1\r\nX-%b" % UTF8),
        # What begins no request, and what is no header, stays.
        (b"GET /%b" % UTF8, b"GET /%b" % UTF8),
        (b"%b" % UTF8, b"%b" % UTF8),
        (b"GET /%b HTTP/2.0\r\n\r\n" % UTF8, b"GET /%b HTTP/2.0\r\n\r\n" % UTF8),
        (b"GET / HTTP/1.1\r\n%b\r\n\r\n" % UTF8, b"GET / HTTP/1.1\r\n%b\r\n\r\n" % UTF8),
        (b"GET / HTTP/1.1\r\nA: b\r\n %b: c\r\n\r\n" % UTF8, b"GET / HTTP/1.1\r\nA: b\r\n %b: c\r\n\r\n" % UTF8),
    ],
)
def test_heads(head: bytes, written: bytes | None) -> None:
    found = encoded(head)
    if written is not None:
        assert found == written
    else:
        top, _, body = found.partition(b"\r\n\r\n")
        line, name = top.split(b"\r\n")[0], top.split(b"\r\n")[1].partition(b":")[0]
        assert line.isascii()
        assert name.isascii()
        assert body == head.partition(b"\r\n\r\n")[2]


def test_names_come_back() -> None:
    head = encoded(b"GET / HTTP/1.1\r\nX-Meta-a%bb: x\r\n\r\n" % UTF8)
    assert plain_name(head.split(b"\r\n")[1].partition(b":")[0].decode("ascii")) == "X-Meta-aä€b"
    assert plain_name("X-Meta-%C3%A4") == "X-Meta-%C3%A4"
    # Whoever writes names in this way themselves gets no control characters by it.
    assert plain_name("X-%~0D%~0A%~00") == "X-%~0D%~0A%~00"
    with pytest.raises(UnicodeDecodeError):
        plain_name("X-%~FF")


@given(st.binary(max_size=300))
def test_heads_stay_in_one_piece(data: bytes) -> None:
    """Whatever is changed, no line begins or ends anywhere else, and nothing behind the head is touched."""
    head = b"PUT /a HTTP/1.1\r\n" + data
    found = encoded(head)
    assert found.count(b"\r") == head.count(b"\r")
    assert found.count(b"\n") == head.count(b"\n")
    assert found.partition(b"\r\n\r\n")[2] == head.partition(b"\r\n\r\n")[2]


def test_boundaries() -> None:
    boundary, found = Boundary(), []
    for data, size in ((b"GET / HTTP/1.1\r\n\r\n", 0), (b"PUT / HTTP/1.1\r\n\r\nab", 5), (b"cde", None)):
        boundary.passed(data, size)
        found.append(boundary.is_here)
    assert found == [True, False, True]
    for data, size in (
        (b"GET / HTTP/1.1\r\n", 0),
        (b"GET / HTTP/1.1\r\n\r\nGET", 0),
        (b"PUT / HTTP/1.1\r\n\r\n", None),
        (b"PUT / HTTP/1.1\r\n\r\n", MAX_BODY + 1),
    ):
        lost = Boundary()
        lost.passed(data, size)
        lost.passed(b"\r\n\r\n", 0)
        lost.passed(b"GET / HTTP/1.1\r\n\r\n", 0)
        assert not lost.is_here


async def _echo(request: web.Request) -> web.Response:
    body = await request.read()
    names = [plain_name(name) for name in request.headers if name.startswith("X-")]
    return web.Response(text=f"{request.rel_url.raw_path} {names} ", headers={"X-Body": body.hex()})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", _echo)
    runner = ServiceRunner(app)
    await runner.setup()
    listening = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listening).start()
    yield listening.getsockname()[1]
    await runner.cleanup()


async def _ask(port: int, *pieces: bytes) -> list[tuple[int, str, str]]:
    """Each piece is sent once the one before has been read; what is answered, as long as requests are."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found = []
    for piece in pieces:
        writer.write(piece)
        try:
            async with asyncio.timeout(0.3 if piece.endswith(b"...") else 10):
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                headers = dict(line.partition(": ")[::2] for line in head.split("\r\n")[1:])
                text = await reader.readexactly(int(headers["Content-Length"]))
                found.append((int(head.split()[1]), text.decode(), headers.get("X-Body", "")))
        except (TimeoutError, asyncio.IncompleteReadError):
            continue
    writer.close()
    return found


async def test_requests_on_one_connection(port: int) -> None:
    read = b"GET /%b HTTP/1.1\r\nHost: x\r\nX-%b: 1\r\n\r\n" % (UTF8, UTF8)
    write = b"PUT /w HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(read), read)
    answers = await _ask(port, read, write, read)
    assert [(status, text) for status, text, _ in answers] == [
        (200, "/%C3%A4%E2%82%AC ['X-ä€'] "),
        (200, "/w [] "),
        (200, "/%C3%A4%E2%82%AC ['X-ä€'] "),
    ]
    assert bytes.fromhex(answers[1][2]) == read, "a body that looks like a request is not changed"


async def test_a_body_that_comes_by_itself_is_not_changed(port: int) -> None:
    read = b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n" % UTF8
    head = b"PUT /w HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nX-Wait: ..." % len(read)
    answers = await _ask(port, head, b"\r\n\r\n...", read)
    assert [(status, len(body)) for status, _, body in answers] == [(200, 2 * len(read))]


async def test_a_body_without_a_length_has_an_answer_of_its_own(port: int) -> None:
    answers = await _ask(port, b"PUT /w HTTP/1.1\r\nHost: x\r\n\r\nno request at all\r\n\r\n", b"")
    assert [(status, text[:3]) for status, text, _ in answers] == [(200, "/w "), (400, "Inv")]


async def test_where_it_is_not_certain_that_a_request_begins_it_is_refused(port: int) -> None:
    read = b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n" % UTF8
    chunked = b"PUT /w HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"
    assert [status for status, _, _ in await _ask(port, chunked, read)] == [200, 400]
