"""The shapes: requests of which each is as costly as a client can make it."""

from __future__ import annotations

import base64
import gzip
import hmac
import io
import json
import random
import tarfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal

from bench.soak.client import Client, Told
from bench.soak.prepare import INLINE, KEY, ROWS, SEGMENTS, tar_of

Shape = Callable[[Client], Awaitable[Told]]
_BOUNDARY = "b" * 20
_FORM = {"Content-Type": f"multipart/form-data; boundary={_BOUNDARY}"}
_MANIFEST = "multipart-manifest=put"
_MIB = 1 << 20


def _ask(method: str, path: str = "", query: str = "", **headers: str) -> Shape:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda client: client.call(method, path, named, query=query)


def _send(method: str, path: str, body: Callable[[], bytes], query: str = "", **headers: str) -> Shape:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda client: client.call(method, path, named, body(), query)


def _ranges(count: int, size: int) -> str:
    step = size // count
    return "bytes=" + ",".join(f"{number * step}-{number * step + step // 2}" for number in range(count))


def _spots(count: int, size: int) -> str:
    return "bytes=" + ",".join(f"{number * size // count}-{number * size // count + 1}" for number in range(count))


def _bomb(kind: Literal["w:gz", "w:bz2"]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=kind) as archive:
        info = tarfile.TarInfo("c/bomb")
        info.size = 200 * _MIB
        archive.addfile(info, _Zeros(info.size))
    return out.getvalue()


class _Zeros(io.RawIOBase):
    def __init__(self, size: int) -> None:
        self._left = size

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` zeros of those that are left."""
        taken = min(size, self._left) if size >= 0 else self._left
        self._left -= taken
        return bytes(taken)


def _pax() -> bytes:
    items = "".join(_pax_line(f"SCHILY.xattr.user.meta.n{number}", "v" * 50) for number in range(900)).encode()
    out = io.BytesIO()
    for number in range(500):
        head = tarfile.TarInfo("x")
        head.type, head.size = tarfile.XHDTYPE, len(items)
        out.write(head.tobuf() + items + bytes(-len(items) % 512))
        out.write(tarfile.TarInfo(f"c/pax{number % 3}").tobuf())
    return out.getvalue() + bytes(1024)


def _pax_line(name: str, value: str) -> str:
    length = len(name) + len(value) + 3
    length += len(str(length + len(str(length))))
    return f"{length} {name}={value}\n"


async def _tiny_parts(client: Client) -> Told:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield f"--{_BOUNDARY}\r\n\r\n\r\n".encode() * 2500

    return await client.call("POST", "c", _FORM, parts(), anonymous=True)


async def _wide_field(client: Client) -> Told:
    head = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="a"\r\n\r\n'.encode()
    return await client.call("POST", "c", _FORM, head + (b"\r\n--" + b"b" * 19) * 200_000, anonymous=True)


async def _long_headers_of_parts(client: Client) -> Told:
    part = f"--{_BOUNDARY}\r\nContent-Disposition: form-data; ".encode() + b'a="\\"";' * 1100 + b"\r\n\r\nx\r\n"
    return await client.call("POST", "c", _FORM, part * 99, anonymous=True)


async def _many_headers(client: Client) -> Told:
    return await client.call("PUT", "c/headers", {f"X-Object-Meta-{n:05}": "v" * 40 for n in range(90)}, b"x")


async def _temp_url(client: Client) -> Told:
    expires = int(time.time()) + 60
    path = f"/v1/{client.account}/c/small"
    sig = hmac.new(KEY.encode(), f"GET\n{expires}\n{path}".encode(), "sha256").hexdigest()
    query = f"temp_url_sig={sig}&temp_url_expires={expires}&temp_url_prefix={'p' * 4000}"
    return await client.call("GET", "c/small", query=query, anonymous=True)


async def _token(client: Client) -> Told:
    depth = 1 + random.randrange(900)
    text = base64.urlsafe_b64encode(("[" * depth + "]" * depth).encode()).decode().rstrip("=")
    return await client.call("GET", "c/small", {"X-Auth-Token": f"AUTH_tk{text[:1900]}.{'A' * 43}"})


async def _bulk_delete(client: Client) -> Told:
    names = "\n".join(f"c/none-{n}-{'%C3%A9' * 100}" for n in range(10_000)).encode()
    return await client.call("POST", "", {"Content-Type": "text/plain"}, names, "bulk-delete")


async def _many_containers(client: Client) -> Told:
    return await client.call("PUT", "", {}, tar_of({f"k{n:03}/o": b"" for n in range(50)}), "extract-archive=tar")


async def _gzip_of_many(client: Client) -> Told:
    packed = gzip.compress(tar_of({f"copies/{n:05}": b"" for n in range(3000)}))
    return await client.call("PUT", "", {}, packed, "extract-archive=tar.gz")


async def _expiring(client: Client) -> Told:
    headers = {"X-Delete-At": str(int(time.time()) + random.randrange(10**8, 10**9))}
    for _ in range(20):
        told = await client.call("PUT", "c/expiring", headers, b"")
    return told


def _entry_of(data: str) -> bytes:
    return json.dumps({"data": data}).encode() + b","


_ACL = ",".join(f"AUTH_account{number:03}:user{number:03}" for number in range(300))[:7900]
_SEGMENT = b'{"path":"/c/seg"}]'
_PATHS = b'{"path":"/c/missing-%06d"},'
SHAPES: dict[str, Shape] = {
    "GET of a small object": _ask("GET", "c/small"),
    "listing, JSON": _ask("GET", "rows", f"format=json&limit={ROWS}"),
    "listing, XML": _ask("GET", "rows", f"format=xml&limit={ROWS}"),
    "listing, text": _ask("GET", "rows", f"limit={ROWS}"),
    "listing, delimiter": _ask("GET", "rows", "format=json&delimiter=/"),
    "listing, delimiter n": _ask("GET", "rows", "format=json&delimiter=n"),
    "listing, long delimiter": _ask("GET", "rows", "format=json&delimiter=" + "n" * 2000),
    "listing, reverse": _ask("GET", "rows", "format=json&reverse=on&delimiter=/"),
    "listing, prefix and marker": _ask("GET", "rows", "format=json&prefix=d&marker=d2&end_marker=d24&delimiter=/"),
    "listing, path": _ask("GET", "rows", "format=json&path=d0001"),
    "listing, many parameters": _ask("GET", "c", "&".join(f"a{n}=%41" for n in range(900))),
    "listing of an account": _ask("GET", "", "format=json"),
    "web listing": lambda client: client.call("GET", "web/", anonymous=True),
    "versions listing": _ask("GET", "v", "versions&format=json"),
    "versions listing, delimiter": _ask("GET", "v", "versions&format=json&delimiter=/&prefix=o"),
    "SLO of many segments": _ask("GET", "c/slo"),
    "SLO, ranges": _ask("GET", "c/slo", Range=_ranges(49, SEGMENTS * 5000)),
    "SLO, part": _ask("GET", "c/slo", f"part-number={SEGMENTS}"),
    "SLO, nested": _ask("GET", "c/nested3", Range=_spots(49, 20**4 * SEGMENTS * 5000)),
    "SLO, inline data": _ask("GET", "c/inline"),
    "SLO, inline data and ranges": _ask("GET", "c/inline", Range=_ranges(49, INLINE)),
    "SLO, large inline data and ranges": _ask("GET", "c/heavy", Range=_ranges(49, 6 * _MIB)),
    "SLO, the manifest": _ask("GET", "c/slo", "multipart-manifest=get&format=raw"),
    "SLO, the heavy manifest": _ask("GET", "c/heavy", "multipart-manifest=get&format=raw"),
    "DLO": _ask("GET", "c/dlo"),
    "DLO, a range": _ask("GET", "c/dlo", Range="bytes=-100"),
    "DLO, HEAD": _ask("HEAD", "c/dlo"),
    "DLO of more than a page": _ask("HEAD", "c/all"),
    "manifest of numbers": _send("PUT", "c/m", lambda: b"[" + b"0," * (4 * _MIB - 2) + b"0]", _MANIFEST),
    "manifest of lists": _send("PUT", "c/m", lambda: b"[" + b"[]," * (8 * _MIB // 3 - 2) + b"0]", _MANIFEST),
    "manifest of few numbers": _send("PUT", "c/m", lambda: b"[" + b"0," * 2900 + b"0]", _MANIFEST),
    "manifest of small data": _send("PUT", "c/m", lambda: b"[" + _entry_of("AA==") * 400_000 + b"0]", _MANIFEST),
    "manifest of backslashes": _send("PUT", "c/m", lambda: b'["' + b"\\\\" * (4 * _MIB - 8) + b'"]', _MANIFEST),
    "manifest of blanks": _send("PUT", "c/m", lambda: b" " * (8 * _MIB), _MANIFEST),
    "manifest of one datum": _send("PUT", "c/m", lambda: b"[" + _entry_of("A" * 8_000_000) + _SEGMENT, _MANIFEST),
    "manifest of bad data": _send("PUT", "c/m", lambda: b"[" + _entry_of("A" * 8_000_000 + "*") + _SEGMENT, _MANIFEST),
    "manifest of missing objects": _send(
        "PUT", "c/m", lambda: b"[" + b"".join(_PATHS % n for n in range(999)) + _SEGMENT, _MANIFEST
    ),
    "manifest, a long name": _send("PUT", "c/m", lambda: b'[{"path":"/c/' + b"%" * 8_000_000 + b'"}]', _MANIFEST),
    "manifest, many ranges": _send(
        "PUT", "c/m", lambda: b'[{"path":"/c/o","range":"' + b"0-0," * (_MIB * 2 - 99) + b'"}]', _MANIFEST
    ),
    "form, tiny parts": _tiny_parts,
    "form, a wide field": _wide_field,
    "form, long headers": _long_headers_of_parts,
    "many headers": _many_headers,
    "ACL": _ask("POST", "links", X_Container_Read=_ACL),
    "account ACL": _ask("POST", "", X_Account_Access_Control=json.dumps({"read-only": [f"u:{n}" for n in range(800)]})),
    "pre-flight": _ask(
        "OPTIONS",
        "c/small",
        Origin="http://a.b",
        Access_Control_Request_Method="GET",
        Access_Control_Request_Headers=",".join(f"x{n}" for n in range(1500)),
    ),
    "temporary URL": _temp_url,
    "token": _token,
    "links in a circle": _ask("GET", "links/1"),
    "links in a chain": _ask("GET", "links/s4"),
    "COPY of an SLO": _ask("COPY", "c/slo", Destination="copies/slo"),
    "COPY of a DLO": _ask("COPY", "c/dlo", Destination="copies/dlo"),
    "PUT with a time": _expiring,
    "PUT into a stack": _send("PUT", "stack/o", lambda: b"x"),
    "bulk delete": _bulk_delete,
    "archive of containers": _many_containers,
    "archive of many files": _gzip_of_many,
    "archive of metadata": _send("PUT", "", _pax, "extract-archive=tar"),
    "archive, gzip bomb": _send("PUT", "", lambda: _bomb("w:gz"), "extract-archive=tar.gz"),
    "archive, bzip2 bomb": _send("PUT", "", lambda: _bomb("w:bz2"), "extract-archive=tar.bz2"),
    "large object": _send("PUT", "c/large", lambda: bytes(64 * _MIB)),
    "large object, read": _ask("GET", "c/large"),
}
