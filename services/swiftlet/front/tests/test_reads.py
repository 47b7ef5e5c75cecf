"""Conditions and ranges: the front's answer is Python's, byte for byte, and what it does not understand is Python's."""

from __future__ import annotations

import asyncio
import io
import random
import re
import socket
from collections.abc import Sequence
from itertools import product

import pytest
from prometheus_client import REGISTRY

from swiftlet.api.tests.large import md5
from swiftlet.front.tests.conftest import PATIENCE_S, FrontedProxy
from swiftlet.placement.tests.cluster import ACCOUNT

DATA = b"0123456789"
ETAG = md5(DATA)
PAST, FUTURE = "Thu, 01 Jan 1970 00:00:01 GMT", "Fri, 29 Oct 2094 19:43:31 GMT"
SMALL = 64 * 1024
"""The size of an object, or of a part of one, up to which the front needs no room for large answers."""
LARGEST = 1 << 20
HUGE = 5 << 20
"""A device sends any part of such an object in pieces."""
COLD = "?x=y"
"""A query makes a request Python's; this one means nothing."""
_OF_ONE_ANSWER = re.compile(rb"(?m)^(Date|X-Trans-Id|X-Openstack-Request-Id): .*\r$")


async def ask(fronted: FrontedProxy, method: str, target: str, *lines: str) -> tuple[int, bytes]:
    """Status and every byte of an answer on a connection of its own, but for what differs each time."""
    reader, writer = await fronted.connect()
    token = fronted.proxy.token["X-Auth-Token"]
    head = [f"{method} /v1/{ACCOUNT}/{target} HTTP/1.1", "Host: h", f"X-Auth-Token: {token}", *lines]
    writer.write("\r\n".join([*head, "Connection: close", "", ""]).encode())
    async with asyncio.timeout(PATIENCE_S):
        answer = await reader.read()
    writer.close()
    shown, _, body = answer.partition(b"\r\n\r\n")
    return int(answer.split()[1]), _OF_ONE_ANSWER.sub(rb"\1\r", shown + b"\r\n") + b"\r\n" + body


async def by_front(fronted: FrontedProxy, method: str, target: str, *lines: str) -> tuple[int, bytes]:
    """The same once the front is the one that answers."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            before = fronted.answered
            answer = await ask(fronted, method, target, *lines)
            if fronted.answered > before:
                return answer
            await fronted.proxy.call("HEAD", "c/heating")
            await asyncio.sleep(0.01)


async def by_python(fronted: FrontedProxy, method: str, target: str, *lines: str) -> tuple[int, bytes]:
    return await ask(fronted, method, target + COLD, *lines)


async def put(fronted: FrontedProxy, name: str, data: bytes, **headers: str) -> None:
    given = {"Content-Type": "text/plain"} | {key.replace("_", "-"): value for key, value in headers.items()}
    assert (await fronted.proxy.call("PUT", f"c/{name}", given, io.BytesIO(data), query="x=y")).status == 201


@pytest.fixture
async def stored(fronted: FrontedProxy) -> FrontedProxy:
    """A proxy, and objects that are read through it."""
    await put(fronted, "heating", b"")
    await put(fronted, "o", DATA, X_Object_Meta_A="b", Content_Disposition="inline", X_Robots_Tag="none")
    await put(fronted, "going", DATA, X_Delete_At="4000000000", X_Object_Meta_A="b")
    await put(fronted, "empty", b"")
    await put(fronted, "small", bytes(range(256)) * (SMALL // 256))
    await put(fronted, "medium", bytes(range(256)) * 1024)
    await put(fronted, "largest", bytes(range(256)) * (LARGEST // 256))
    await put(fronted, "larger", b"x" * (LARGEST + 1))
    await put(fronted, "huge", bytes(range(256)) * (HUGE // 256))
    return fronted


TO_THE_FRONT = [
    ("o", ["If-Match: " + ETAG], 200),
    ("o", [f'If-Match: "x", "{ETAG}"'], 200),
    ("o", ["If-Match: *"], 200),
    ("o", ["If-Match: x"], 412),
    ("o", [f"if-none-match: {ETAG}"], 304),
    ("o", [f'If-None-Match: W/"{ETAG}"'], 304),
    ("o", ["If-None-Match: x"], 200),
    ("o", [f"If-Modified-Since: {PAST}"], 200),
    ("o", [f"If-Modified-Since: {FUTURE}"], 304),
    ("o", [f"If-Unmodified-Since: {PAST}"], 412),
    ("o", [f"If-Unmodified-Since: {FUTURE}"], 200),
    ("o", [f"If-Match: {ETAG}", f"If-Unmodified-Since: {PAST}"], 412),
    ("o", ["If-None-Match: x", f"If-Modified-Since: {FUTURE}"], 200),
    ("o", ["If-Match: *", "If-None-Match: *"], 304),
    ("larger", ["If-None-Match: *"], 304),
    ("larger", ["If-Match: x"], 412),
    ("o", ["Range: bytes=0-0"], 206),
    ("o", ["Range: bytes=2-5"], 206),
    ("o", ["Range: bytes=2-99"], 206),
    ("o", ["Range: bytes=9-"], 206),
    ("o", ["Range: bytes=-3"], 206),
    ("o", ["Range: bytes=-99"], 206),
    ("o", ["Range: bytes=10-"], 416),
    ("o", ["Range: bytes=10-20"], 416),
    ("o", ["Range: bytes=-0"], 416),
    ("empty", ["Range: bytes=0-"], 416),
    ("empty", ["Range: bytes=-1"], 416),
    ("o", ["Range: bytes=99-", "If-None-Match: *"], 304),
    ("o", ["Range: bytes=99-", "If-Match: x"], 412),
    ("o", ["Range: bytes=1-2", f'If-Range: "{ETAG}"'], 206),
    ("o", ["Range: bytes=0-99", 'If-Range: "x"'], 200),
    ("o", ["Range: bytes=0-", f"If-Range: {PAST}"], 200),
    ("o", ["Range: bytes=1-2", 'If-Range: "x"'], 200),
    ("going", ["Accept: */*"], 200),
    ("going", ["Range: bytes=2-5"], 206),
    ("going", ["If-None-Match: *"], 304),
    ("going", ["If-Match: x"], 412),
    ("going", ["Range: bytes=10-"], 416),
    ("small", ["Accept: */*"], 200),
    ("small", [f"Range: bytes=0-{SMALL - 1}"], 206),
    ("small", ["Range: bytes=1-"], 206),
    ("medium", ["Accept: */*"], 200),
    ("medium", ["Range: bytes=100-199"], 206),
    ("medium", [f"Range: bytes={3 * SMALL}-"], 206),
    ("medium", [f"Range: bytes={4 * SMALL}-"], 416),
    ("medium", [f"Range: bytes=1-{SMALL + 1}"], 206),
    ("medium", ["Range: bytes=0-"], 206),
    ("medium", ["Range: bytes=-1"], 206),
    ("medium", [f"Range: bytes=-{SMALL + 1}"], 206),
    ("larger", ["Accept: */*"], 200),
    ("larger", [f"Range: bytes=0-{LARGEST}"], 206),
    ("largest", ["If-Match: *"], 200),
    ("largest", [f"Range: bytes=0-{LARGEST - 1}"], 206),
    ("huge", [f"Range: bytes=1-{LARGEST}"], 206),
    ("huge", [f"Range: bytes={HUGE - 10}-{HUGE + SMALL}"], 206),
    ("huge", ["Range: bytes=100-199"], 206),
    ("huge", [f"Range: bytes={(2 << 20) - 10}-{(2 << 20) + 9}"], 206),
    ("huge", [f"Range: bytes={HUGE - SMALL}-"], 206),
    ("huge", [f"Range: bytes={HUGE}-"], 416),
    ("huge", ["If-Match: *"], 200),
    ("huge", ["Range: bytes=1-"], 206),
    ("huge", [f"Range: bytes=-{2 * LARGEST}"], 206),
    ("huge", ["Range: bytes=-1"], 206),
    ("huge", ["Range: bytes=0-0", 'If-Range: "x"'], 200),
    ("huge", ["If-None-Match: *"], 304),
    ("huge", ["If-Match: x"], 412),
]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_the_same_answer_as_pythons(stored: FrontedProxy, method: str) -> None:
    for name, lines, status in TO_THE_FRONT:
        found = await by_front(stored, method, f"c/{name}", *lines)
        assert found == await by_python(stored, method, f"c/{name}", *lines), (name, lines)
        # A range of what is described means nothing.
        partial = lines[0].startswith("Range") and method == "HEAD" and status in {206, 416}
        assert found[0] == (200 if partial else status), (name, lines)


async def test_the_very_second(stored: FrontedProxy) -> None:
    head = await stored.proxy.call("HEAD", "c/o")
    modified = head.headers["Last-Modified"]
    for line, status in (
        ("If-Modified-Since", 304),
        ("If-Unmodified-Since", 200),
        ("Range: bytes=0-0\r\nIf-Range", 206),
    ):
        found = await by_front(stored, "GET", "c/o", f"{line}: {modified}")
        assert found == await by_python(stored, "GET", "c/o", f"{line}: {modified}")
        assert found[0] == status


async def test_a_post_counts(stored: FrontedProxy) -> None:
    """As for Last-Modified."""
    stored.proxy.clock.now += 1000.0
    before = (await stored.proxy.call("HEAD", "c/o")).headers["Last-Modified"]
    assert (await stored.proxy.call("POST", "c/o", {"X-Object-Meta-A": "c"})).status == 202
    after = (await stored.proxy.call("HEAD", "c/o")).headers["Last-Modified"]
    for date, status in ((after, 200), (before, 412)):
        line = f"If-Unmodified-Since: {date}"
        found = await by_front(stored, "GET", "c/o", line)
        assert found == await by_python(stored, "GET", "c/o", line)
        assert found[0] == status


HANDED_OVER = [
    ("o", ["Range: bytes=0-1,3-4"]),
    ("o", ["Range: bytes=0-1", "Range: bytes=3-4"]),
    ("o", ["Range: bytes = 0-1"]),
    ("o", ["Range: Bytes=0-1"]),
    ("o", ["Range: bytes=5-4"]),
    ("o", ["Range: lines=5-4"]),
    ("o", ["Range:"]),
    ("o", ["Range: bytes=1-2", f'If-Range: W/"{ETAG}"']),
    ("o", ["If-None-Match:"]),
    ("o", ["If-Match: x", f"If-Match: {ETAG}"]),
    ("o", ["If-Modified-Since: yesterday"]),
    ("o", ["If-Modified-Since: Saturday, 29-Oct-94 19:43:31 GMT"]),
    ("o", ["If-Unmodified-Since: Sat, 29 Oct 1994 19:43:31 +0100"]),
    ("o", ["If-Unmodified-Since: Wed, 31 Dec 1969 23:59:59 GMT"]),
]


async def test_what_is_pythons(stored: FrontedProxy) -> None:
    for name, lines in HANDED_OVER:
        await by_front(stored, "GET", "c/o")
        before = stored.answered
        found = await ask(stored, "GET", f"c/{name}", *lines)
        assert stored.answered == before, (name, lines)
        expected = await by_python(stored, "GET", f"c/{name}", *lines)
        if "0-1,3-4" not in lines[0]:  # Its boundary is another one each time.
            assert found == expected, (name, lines)
        assert found[0] == expected[0], (name, lines)


AT_ONCE = 8
"""Answers of the largest size that no kernel takes from the front while a client takes nothing."""


def begin_to_read(fronted: FrontedProxy, target: str) -> socket.socket:
    """Ask for an object several times, as a client that takes nothing of the answers and has little room for them."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(PATIENCE_S)
    client.connect(("127.0.0.1", fronted.proxy.port))
    if fronted.trusting is not None:
        client = fronted.trusting.wrap_socket(client, server_hostname="localhost")
    token = fronted.proxy.token["X-Auth-Token"]
    head = f"GET /v1/{ACCOUNT}/{target} HTTP/1.1", "Host: h", f"X-Auth-Token: {token}"
    lines = "\r\n".join(head)
    client.sendall((f"{lines}\r\n\r\n" * (AT_ONCE - 1) + f"{lines}\r\nConnection: close\r\n\r\n").encode())
    return client


def read_all(client: socket.socket) -> bytes:
    answers = bytearray()
    with client:
        while read := client.recv(1 << 16):
            answers += read
    return bytes(answers)


async def test_clients_that_take_nothing(stored: FrontedProxy) -> None:
    """Each gets all its answers, whoever gives them; and there is room for large ones again when they are gone."""
    _, answer = await by_front(stored, "GET", "c/largest")
    expected = answer.partition(b"\r\n\r\n")[2]
    slow = [await asyncio.to_thread(begin_to_read, stored, "c/largest") for _ in range(4)]
    await by_front(stored, "GET", "c/small")
    for one in slow:
        assert (await asyncio.to_thread(read_all, one)).count(expected) == AT_ONCE
    for _ in range(4):
        gone = await asyncio.to_thread(begin_to_read, stored, "c/largest")
        gone.close()
    assert (await by_front(stored, "GET", "c/largest"))[1].endswith(expected)


def _some(chance: random.Random, modified: str) -> Sequence[str]:
    dates = [PAST, FUTURE, modified, "Sun, 06 Nov 1994 08:49:37 GMT", "tomorrow", "Sunday, 06-Nov-94 08:49:37 GMT"]
    tags = [
        "*",
        ETAG,
        f'"{ETAG}"',
        f'W/"{ETAG}"',
        "x",
        f'"x" ,"{ETAG}"',
        ",",
        f" {ETAG} ",
        f'""{ETAG}',
        "W/*",
        "",
        '"*"',
    ]
    numbers = ["", "", "0", "1", "5", "9", "10", "11", "65535", "65536", "262143", "1048575", "9" * 18, "9" * 19]
    ranges = [
        f"{unit}{chance.choice(numbers)}-{chance.choice(numbers)}" for unit in ("bytes=", "bytes=", "bytes= ", "x=")
    ]
    kinds = {
        "If-Match": tags,
        "If-None-Match": tags,
        "If-Modified-Since": dates,
        "If-Unmodified-Since": dates,
        "Range": ranges,
        "If-Range": [*dates, *tags],
    }
    return [f"{kind}: {chance.choice(values)}" for kind, values in kinds.items() if chance.random() < 0.3]


async def test_any_of_them_together(stored: FrontedProxy) -> None:
    """Whoever answers, it is the same."""
    modified = (await stored.proxy.call("HEAD", "c/o")).headers["Last-Modified"]
    chance = random.Random(20261125)
    await by_front(stored, "GET", "c/o")
    begun = stored.answered
    for _ in range(150):
        method = chance.choice(["GET", "GET", "HEAD"])
        name = chance.choice(["o", "o", "empty", "small", "medium", "largest", "huge"])
        lines = _some(chance, modified)
        found = await ask(stored, method, f"c/{name}", *lines)
        assert found == await by_python(stored, method, f"c/{name}", *lines), (method, name, lines)
    assert stored.answered - begun > 25


COUNTED = [
    ("Range: bytes=2-5", 206, 4),
    ("Range: bytes=99-", 416, 63),
    ("If-None-Match: *", 304, 0),
    ("If-Match: x", 412, 59),
]


async def test_counted_without_what_is_not_sent(stored: FrontedProxy) -> None:
    def counted(method: str, status: int) -> tuple[float, float]:
        stored.front.status()  # This takes what the front has noted.
        labels = {"service": "proxy", "method": method, "status": str(status)}
        found = (("requests", labels), ("sent_bytes", {"service": "proxy"}))
        numbers = [REGISTRY.get_sample_value(f"swiftlet_http_{name}_total", of) or 0.0 for name, of in found]
        return numbers[0], numbers[1]

    for method, (line, status, size) in product(("GET", "HEAD"), COUNTED):
        await by_front(stored, method, "c/o", line)
        before, answered = counted(method, status), stored.answered
        await ask(stored, method, "c/o", line)
        after = counted(method, status)
        assert stored.answered == answered + 1, (method, line)
        is_whole = method == "HEAD" and line.startswith("Range")
        expected = (0 if is_whole else 1, size if method == "GET" else 0)
        assert (after[0] - before[0], after[1] - before[1]) == expected, (method, line)
