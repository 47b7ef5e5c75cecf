"""Prepares what shapes need: containers with many rows, large objects of both kinds, links, versions, a web site."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from collections.abc import Mapping

from bench.soak.client import Client

ROWS = 10_000
SEGMENTS = 1000
INLINE = 2000
KEY = "soak-key"


def tar_of(files: Mapping[str, bytes]) -> bytes:
    """Return a tar archive of these files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


async def prepare(client: Client) -> None:
    """Everything; takes a minute or so."""
    for name in ("c", "rows", "dlo", "web", "links", "v", "old", "stack", "copies"):
        await client.need(201, "PUT", name)
    await client.need(201, "PUT", "c/small", body=b"x" * 100)
    await _rows(client)
    await _large(client)
    await _links(client)
    await client.need(204, "POST", "", headers={"X-Account-Meta-Temp-URL-Key": KEY})
    await client.need(
        204, "POST", "web", headers={"X-Container-Read": ".r:*,.rlistings", "X-Container-Meta-Web-Listings": "true"}
    )
    await client.need(204, "POST", "v", headers={"X-Versions-Enabled": "true"})
    await client.need(204, "POST", "stack", headers={"X-Versions-Location": "old"})
    for number in range(200):
        await client.need(201, "PUT", "v/o", body=b"%d" % number)
        if number < 20:
            await client.need(201, "PUT", "stack/o", body=b"%d" % number)


async def _rows(client: Client) -> None:
    flat = {f"rows/d{n % 2500:04}/e{n % 7}/{n:06}-{'n' * 40}": b"" for n in range(ROWS)}
    flat |= {f"web/d{n % 50:02}/{n:05}": b"x" for n in range(ROWS // 2)}
    flat |= {f"dlo/s/{n:06}": b"0123456789" for n in range(ROWS // 2)}
    for begin in range(0, len(flat), 2000):
        part = dict(list(flat.items())[begin : begin + 2000])
        await client.need(200, "PUT", "", body=tar_of(part), query="extract-archive=tar")
    await client.need(201, "PUT", "c/dlo", headers={"X-Object-Manifest": "dlo/s/"}, body=b"")
    await client.need(201, "PUT", "c/all", headers={"X-Object-Manifest": "rows/d"}, body=b"")


async def _large(client: Client) -> None:
    await client.need(201, "PUT", "c/seg", body=b"s" * 5000)
    entries = [{"path": "/c/seg"}] * SEGMENTS
    await put_manifest(client, "c/slo", entries)
    name = "c/slo"
    for level in range(4):
        await put_manifest(client, f"c/nested{level}", [{"path": f"/{name}"}] * 20)
        name = f"c/nested{level}"
    data = base64.b64encode(b"d").decode()
    await put_manifest(client, "c/inline", [{"data": data}] * INLINE + [{"path": "/c/seg"}])
    whole = base64.b64encode(bytes((3 << 20) - 4096)).decode()
    await put_manifest(client, "c/heavy", [{"data": whole}, {"path": "/c/seg"}, {"data": whole}])


async def put_manifest(client: Client, path: str, entries: list[dict[str, str]]) -> None:
    """A static large object."""
    await client.need(201, "PUT", path, body=json.dumps(entries).encode(), query="multipart-manifest=put")


async def _links(client: Client) -> None:
    await client.need(201, "PUT", "links/1", headers={"X-Symlink-Target": "links/2"}, body=b"")
    await client.need(201, "PUT", "links/2", headers={"X-Symlink-Target": "links/1"}, body=b"")
    for number in range(5):
        target = "c/slo" if not number else f"links/s{number - 1}"
        await client.need(201, "PUT", f"links/s{number}", headers={"X-Symlink-Target": target}, body=b"")
