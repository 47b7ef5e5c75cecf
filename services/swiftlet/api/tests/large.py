"""Segments and manifests for tests of large objects."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Sequence
from typing import Any

from swiftlet.api.tests.proxy import Answer, Proxy
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT

SEGMENTS = (b"a" * 1500, b"bc" * 10, b"d", b"efg" * 900)
WHOLE = b"".join(SEGMENTS)


def md5(data: bytes) -> str:
    """In hex."""
    return hashlib.md5(data).hexdigest()


def slo_etag(*etags: str) -> str:
    """The entity tag of a whole, unquoted."""
    return md5("".join(etags).encode())


def entry(name: str, data: bytes | None = None, **more: Any) -> dict[str, Any]:
    """A manifest's entry for `/c/name`; with its size and ETag when `data` is given."""
    known = {} if data is None else {"etag": md5(data), "size_bytes": len(data)}
    return {"path": f"/c/{name}", **known, **more}


def inline(data: bytes) -> dict[str, str]:
    """A manifest's entry that holds its bytes."""
    return {"data": base64.b64encode(data).decode()}


async def put_segments(proxy: Proxy, segments: Sequence[bytes] = SEGMENTS, prefix: str = "s/") -> list[dict[str, Any]]:
    """Store segments; the manifest's entries for them."""
    entries = []
    for number, data in enumerate(segments):
        name = f"{prefix}{number:03}"
        assert (await proxy.call("PUT", f"c/{name}", data=io.BytesIO(data))).status == 201
        entries.append(entry(name, data))
    return entries


async def put_manifest(
    proxy: Proxy, entries: Any, name: str = "big", headers: dict[str, str] | None = None, query: str = ""
) -> Answer:
    """PUT a manifest."""
    body = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return await proxy.call("PUT", f"c/{name}", headers, body, "multipart-manifest=put" + query)


async def put_large(proxy: Proxy, name: str = "big", **more: Any) -> Answer:
    """A large object of SEGMENTS."""
    answer = await put_manifest(proxy, await put_segments(proxy), name, **more)
    assert answer.status == 201, answer
    return answer


def path(name: str) -> Path:
    """An object in the container of the tests."""
    return Path(ACCOUNT, "c", name)
