"""Requests made from `docs/openapi.yaml`: what a parameter may be, nearly may be, and must not be.

Values are those that the description names, others of the same type, and bytes that break parsers. Everything is sent
over a bare socket, so that no library puts right what is wrong.
"""

from __future__ import annotations

import io
import json
import re
import select
import socket
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import IncompleteRead
from typing import Any
from urllib.parse import quote, urlsplit

from hypothesis import strategies as st

from e2e.standalone.wire import Answer, parse_answer
from swiftlet.api.tests.openapi import Operation, Parameter

NASTY = (
    b"",
    b" ",
    b"-1",
    b"0",
    b"1e400",
    b"NaN",
    b"9" * 40,
    b"1_0",
    "\u0663".encode(),
    "\u00e9\U0001f600".encode(),
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\xc0\xaf",
    b"\x01\x7f",
    b"\t",
    b"a" * 300,
    b"a," * 2000,
    b"%",
    b"%00",
    b"%0d%0aEvil: yes",
    b"%ff",
    b"../../etc/passwd",
    b"..%2f..%2fx",
    b"'\"<>&;{}[]",
    b"${jndi:ldap://127.0.0.1/a}",
    b"http://127.0.0.1:1/",
)
WORDS = ("true", "false", "1", "on", "no", "get", "put", "null")
RARELY = frozenset({"X-Versions-Enabled", "X-Versions-Location", "X-History-Location"})
"""A change of these is answered once every process knows of it, which takes seconds."""
MOMENT_S = 0.2
TOKENS = ("good", "good", "good", "none", "bad")


@dataclass(frozen=True)
class Request:
    """One request; `token` is put in when it is sent."""

    operation: str
    method: str
    target: bytes
    headers: tuple[tuple[str, bytes], ...]
    body: bytes
    token: str
    refused_with: frozenset[int]
    """Statuses of what is not supported, if any of that is asked for."""
    whole: bool
    """Whether its framing is right, so that the server knows where it ends."""

    def raw(self, token: str) -> bytes:
        """The bytes to send."""
        sent = {"good": token, "bad": "AUTH_tk" + "A" * 40}.get(self.token)
        lines = [self.method.encode() + b" " + self.target + b" HTTP/1.1", b"Host: fuzz", b"Connection: close"]
        lines += [name.encode() + b": " + value for name, value in self.headers]
        lines += [f"X-Auth-Token: {sent}".encode()] if sent else []
        return b"\r\n".join(lines) + b"\r\n\r\n" + self.body


def text_of(schema: Mapping[str, Any], calm: bool = False) -> st.SearchStrategy[bytes]:
    """A parameter's value as bytes: as described, of that type, or, unless it is to be `calm`, neither."""
    known = [str(one) for one in [*schema.get("examples", []), *schema.get("enum", [])]]
    kind = str(schema.get("type", "string"))
    typed = {"integer": st.integers(-2, 1 << 64).map(str), "boolean": st.sampled_from(WORDS)}.get(
        kind, st.text(max_size=20)
    )
    good = st.sampled_from(known) if known else typed
    if calm:
        return good.map(_encoded)
    return st.one_of(good, good, typed, st.sampled_from(WORDS)).map(_encoded) | st.sampled_from(NASTY)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def header_value(schema: Mapping[str, Any], calm: bool) -> st.SearchStrategy[bytes]:
    """Without line ends: those have tests of their own."""
    return text_of(schema, calm).map(lambda value: value.replace(b"\r", b" ").replace(b"\n", b" "))


def in_url(schema: Mapping[str, Any], safe: str, calm: bool) -> st.SearchStrategy[bytes]:
    """Percent-encoded, or with what stands in NASTY as it is, as far as a request line can carry it."""
    quoted = text_of(schema, calm).map(lambda value: quote(value, safe=safe).encode())
    if calm:
        return quoted
    return quoted | st.sampled_from([one for one in NASTY if not set(one) & set(b" \t\x01\x7f")])


@st.composite
def requests(draw: st.DrawFn, operation: Operation) -> Request:
    """Any request for an operation."""
    calm = draw(st.booleans())
    chosen = [one for one in operation.parameters if one.place != "path" and draw(_wanted(one, calm))]
    target = operation.path
    for one in operation.parameters:
        if one.place == "path":
            examples = st.sampled_from([str(known).encode() for known in one.schema["examples"]])
            # Without a name it would be another resource's request.
            other = in_url(one.schema, "/" if one.name == "object" else "", calm).filter(bool)
            value = draw(examples | examples | examples | other)
            target = target.replace("{" + one.name + "}", value.decode("latin-1"))
    query = b"&".join(
        one.name.encode() + b"=" + draw(in_url(one.schema, "/", calm)) for one in chosen if one.place == "query"
    )
    kind, body = draw(bodies(operation))
    headers = [(_name(draw, one), draw(header_value(one.schema, calm))) for one in chosen if one.place == "header"]
    if kind and not calm and draw(st.booleans()):
        headers = [pair for pair in headers if pair[0] != "Content-Type"] + [("Content-Type", kind.encode())]
    framing = draw(st.sampled_from(["length", "chunked"] if calm else ["length", "length", "chunked", "none"]))
    if framing == "length":
        headers.append(("Content-Length", str(len(body)).encode()))
    elif framing == "chunked":
        headers.append(("Transfer-Encoding", b"chunked"))
        body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"
    elif operation.method != "PUT":
        body = b""
    # Without framing there is no body, and these bytes are another request.
    whole = framing != "none" or not body
    if draw(st.integers(0, 20)) == 0:
        headers.append(("Expect", b"100-continue"))
    path = target.encode("latin-1") + (b"?" + query if query else b"")
    refused = frozenset(one.refused_with for one in chosen if one.refused_with is not None)
    token = "none" if operation.open else "good" if calm else draw(st.sampled_from(TOKENS))
    return Request(operation.id, operation.method, path, tuple(headers), body, token, refused, whole)


def _wanted(one: Parameter, calm: bool) -> st.SearchStrategy[bool]:
    ways = 60 if one.name in RARELY else 12 if calm else 5
    return st.integers(0, ways).map(lambda number: number == ways)


def _name(draw: st.DrawFn, one: Parameter) -> str:
    if not one.prefix:
        return one.name
    return one.name + draw(st.sampled_from(["Color", "a", "", "x_y", "n" * 200, "Quota", "Temp-URL-Key"]))


def bodies(operation: Operation) -> st.SearchStrategy[tuple[str, bytes]]:
    """A media type and a body."""
    ways = [st.just(("", b"")), st.tuples(st.just(""), st.binary(max_size=200))]
    for kind, schema in operation.bodies.items():
        if kind == "application/json":
            ways.append(st.tuples(st.just(kind), documents(schema) | st.sampled_from(BROKEN_JSON)))
        elif kind == "multipart/form-data":
            ways.append(forms(schema))
        else:
            ways.append(st.tuples(st.just(kind), text_of(schema) | st.sampled_from(ARCHIVES)))
    return st.one_of(ways)


def values(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """JSON: as the schema says, with what it does not say in some places."""
    kinds = schema.get("type", "string")
    kind = kinds[0] if isinstance(kinds, list) else kinds
    odd: st.SearchStrategy[Any] = st.sampled_from(
        [None, True, -1, 1 << 70, 1.5, "", "\0", "\ud800", [], {}, [[]], "x" * 3000]
    )
    if kind == "object":
        fields = {name: values(child) for name, child in schema.get("properties", {}).items()}
        return st.one_of(st.fixed_dictionaries(fields), st.fixed_dictionaries({}, optional=fields), odd)
    if kind == "array":
        return st.lists(values(schema["items"]), max_size=4) | odd
    typed = st.integers(-2, 1 << 40) if kind == "integer" else st.text(max_size=20)
    examples = schema.get("examples", []) + schema.get("enum", [])
    return st.one_of(st.sampled_from(examples) if examples else typed, typed, odd)


def documents(schema: Mapping[str, Any]) -> st.SearchStrategy[bytes]:
    """Return a strategy for values of the schema, as JSON in bytes."""
    return values(schema).map(lambda value: json.dumps(value).encode())


BROKEN_JSON = (b"[" * 6000, b'{"a":' * 3000, b"\xff", b"{", b"nul", b'{"auth":{"auth":NaN}}', b'"\\ud800"', b"1" * 5000)


def forms(schema: Mapping[str, Any]) -> st.SearchStrategy[tuple[str, bytes]]:
    """Forms with boundaries, cut anywhere or whole."""
    names = list(schema["properties"])
    fields = st.lists(st.tuples(st.sampled_from([*names, "signature"]), st.sampled_from(NASTY)), max_size=5)

    def encode(given: list[tuple[str, bytes]], cut: int) -> tuple[str, bytes]:
        parts = [
            b'--X\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n'
            % (name.encode(), b'; filename="f"' if name == "file" else b"", value)
            for name, value in given
        ]
        body = b"".join(parts) + b"--X--\r\n"
        return "multipart/form-data; boundary=X", body[: max(0, len(body) - cut)]

    return st.builds(encode, fields, st.just(0) | st.integers(0, 80))


def _archives() -> tuple[bytes, ...]:
    made = []
    for mode in ("w", "w:gz", "w:bz2"):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode=mode) as archive:
            for name in ("a", "fuzz/b", "../c", "d" * 300, "e\udcff"):
                info = tarfile.TarInfo(name)
                info.size = 3
                archive.addfile(info, io.BytesIO(b"abc"))
        made += [out.getvalue(), out.getvalue()[:700], out.getvalue()[:20] + b"\xff" * 50 + out.getvalue()[70:]]
    return tuple(made)


ARCHIVES = _archives()


def send(endpoint: str, raw: bytes, method: str, within_s: float, *, hang_up: bool) -> Answer | None:
    """The answer; status 0 when the connection was closed without one, None when nothing came in time.

    With `hang_up` the sending side is closed when nothing has come for a moment, as it must be behind a request whose
    end nobody can tell; the server takes that for a client that goes away, and may cut the answer's body.
    """
    parts = urlsplit(endpoint)
    deadline = time.monotonic() + within_s
    received, cut = bytearray(), False
    with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=within_s) as connection:
        try:
            connection.sendall(raw)
            while True:
                if hang_up and not select.select([connection], [], [], MOMENT_S)[0]:
                    connection.shutdown(socket.SHUT_WR)
                    hang_up = False
                    cut = True
                connection.settimeout(max(0.01, deadline - time.monotonic()))
                chunk = connection.recv(65_536)
                if not chunk:
                    break
                received += chunk
        except TimeoutError:
            return None
        except OSError:
            pass  # Closed by the server while more was being sent; what it said counts.
    # The server repeats the version of the request, whatever it is.
    plain = re.sub(rb"^HTTP/\d\.\d", b"HTTP/1.1", bytes(received))
    try:
        return parse_answer(plain, method)
    except IncompleteRead as error:
        assert cut, f"the answer breaks off: {bytes(received)!r}"
        status = int(plain.split(b" ", 2)[1])
        return Answer(status, {}, error.partial)
