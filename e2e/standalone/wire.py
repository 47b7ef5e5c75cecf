"""A bare HTTP client over a socket: sends exactly the bytes it is given, malformed ones included."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import re
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

AGAIN_S, INSISTS_S = 0.2, 300.0
"""Seconds between two requests of one who insists, and after which that gives up."""


class _Canned(io.BytesIO):
    """Received bytes in the shape that http.client reads a response from."""

    def makefile(self, *_: object, **__: object) -> _Canned:
        return self


@dataclass(frozen=True)
class Answer:
    """One response; status 0 when the server closed the connection without one."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


def parse_answer(received: bytes, method: str = "GET") -> Answer:
    """The first response in what was received, interim ones skipped."""
    while received.startswith(b"HTTP/1.1 100"):
        received = received.partition(b"\r\n\r\n")[2]
    if not received:
        return Answer(0, {}, b"")
    response = http.client.HTTPResponse(_Canned(received), method=method)  # type: ignore[arg-type]
    response.begin()
    return Answer(response.status, dict(response.headers.items()), response.read())


def _is_whole(received: bytes, method: str) -> bool:
    """Whether an answer that tells its length is there to its end."""
    while received.startswith(b"HTTP/1.1 100"):
        received = received.partition(b"\r\n\r\n")[2]
    head, end, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"(?im)^content-length: *(\d+)", head)
    return bool(end) and length is not None and (method == "HEAD" or len(body) >= int(length[1]))


def exchange(endpoint: str, request: bytes, *, hang_up: bool = False, timeout_s: float = 30.0) -> Answer:
    """Send raw bytes, and read one answer, or until the server closes or goes quiet.

    With `hang_up` close the sending side at once, and read all that comes.
    """
    parts = urlsplit(endpoint)
    assert parts.hostname is not None
    method = request.split(b" ", 1)[0].decode("latin-1")
    with socket.create_connection((parts.hostname, parts.port or 80), timeout=timeout_s) as connection:
        # Refused before it was read to the end: the answer is what counts.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(request)
        if hang_up:
            connection.shutdown(socket.SHUT_WR)
        received = bytearray()
        with contextlib.suppress(ConnectionResetError):
            # Where the rest of a body is missing, the server waits for it behind its answer.
            while (hang_up or not _is_whole(bytes(received), method)) and (chunk := connection.recv(65_536)):
                received += chunk
    return parse_answer(bytes(received), method)


def raw(
    method: str, target: str, headers: Mapping[str, str | bytes], body: bytes = b"", *, length: bool = True
) -> bytes:
    """A request as bytes, closing the connection after its answer; Content-Length is added unless told not to."""
    lines = [f"{method} {target} HTTP/1.1".encode("latin-1"), b"Host: test", b"Connection: close"]
    for name, value in headers.items():
        lines.append(name.encode("latin-1") + b": " + (value if isinstance(value, bytes) else value.encode()))
    if length:
        lines.append(f"Content-Length: {len(body)}".encode())
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _insisting(ask: Callable[[], Answer]) -> Answer:
    deadline = time.monotonic() + INSISTS_S
    while (answer := ask()).status == 503 and time.monotonic() < deadline:
        time.sleep(AGAIN_S)
    return answer


class Client:
    """The Swift API of one account, a fresh connection per call so that servers may die in between."""

    def __init__(self, endpoint: str, user: str, key: str) -> None:
        """Get a token for `account:user`."""
        self.endpoint = endpoint
        answer = _insisting(lambda: self.plain("GET", "/auth/v1.0", {"X-Auth-User": user, "X-Auth-Key": key}))
        assert answer.status == 200, answer
        self.token = answer.headers["X-Auth-Token"]
        self.base = urlsplit(answer.headers["X-Storage-Url"]).path

    @property
    def account(self) -> str:
        """The name of the account."""
        return self.base.rpartition("/")[2]

    def plain(self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Answer:
        """A request without a token; `target` stands in the request line as it is."""
        parts = urlsplit(self.endpoint)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=600)
        try:
            connection.putrequest(method, target, skip_accept_encoding=True)
            for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                connection.putheader(name, value.encode())
            connection.endheaders(body if body else None)
            response = connection.getresponse()
            return Answer(response.status, dict(response.headers.items()), response.read())
        finally:
            connection.close()

    def call(
        self,
        method: str,
        path: str = "",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        query: str = "",
    ) -> Answer:
        """A request below the account; `path` is `container/object`, quoted here."""
        target = self.base + ("/" + quote(path) if path else "") + ("?" + query if query else "")
        return self.plain(method, target, {"X-Auth-Token": self.token, **(headers or {})}, body)

    def insist(
        self,
        method: str,
        path: str = "",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        query: str = "",
    ) -> Answer:
        """The same request again and again while it is answered with 503: with short time limits, services take each
        other for away where a machine has much else to do. Whatever it does may then have been done several times.
        """
        return _insisting(lambda: self.call(method, path, headers, body, query))
