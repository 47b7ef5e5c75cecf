"""`docs/wire.md` and the outbox in `docs/data-on-disk.md` against the servers: tables, and messages made by hand."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import re
import struct
from pathlib import Path
from types import ModuleType

import pytest
from aiohttp import web
from swiftlet_native import xxh3_64, xxh3_128

from swiftlet.listing import replica
from swiftlet.model import ObjectRow
from swiftlet.servers.containers.account_reports import ReportSettings
from swiftlet.servers.containers.container_server import ContainerServer, add_container_routes
from swiftlet.servers.objects import frames, object_put
from swiftlet.servers.objects.object_put import parse_small
from swiftlet.servers.objects.object_server import ObjectServerSettings, create_object_app
from swiftlet.servers.objects.outbox import Outbox
from swiftlet.testing.storage.object_conformance import RowRecorder
from swiftlet.timestamp import Timestamp
from swiftlet.transport import http_client, listing_wire, object_messages, row_wire, wire
from swiftlet.transport.http_client import HttpSettings
from swiftlet.transport.object_messages import put_from
from swiftlet.transport.signing import ClusterKey
from swiftlet.transport.wire import WireError
from swiftlet.web import statusz
from swiftlet.web.serve import ServeOptions

PAGE = (Path(__file__).resolve().parents[4] / "docs/wire.md").read_text("utf-8")
MODULES: dict[str, ModuleType] = {
    "wire": wire,
    "listing_wire": listing_wire,
    "row_wire": row_wire,
    "http_client": http_client,
    "object_messages": object_messages,
    "object_put": object_put,
    "frames": frames,
    "replica": replica,
    "statusz": statusz,
}
SETTINGS = (HttpSettings, ServeOptions, ObjectServerSettings, ReportSettings)


def found(pattern: str) -> list[tuple[str, ...]]:
    """What stands in the page's tables."""
    rows: list[tuple[str, ...]] = re.findall(pattern, PAGE, re.MULTILINE)
    assert rows
    return rows


def test_paths_are_those_of_the_page() -> None:
    objects = create_object_app(devices={}, outboxes={}, row_sink=RowRecorder())
    containers = web.Application()
    add_container_routes(containers, ContainerServer({}))
    served = {
        (route.method, route.resource.canonical)
        for app in (objects, containers)
        for route in app.router.routes()
        if route.resource is not None
    }
    assert set(found(r"^\| ([A-Z]+) \| `(/v1/[^`]+)` \|")) == served


def test_errors_are_those_of_the_page() -> None:
    served = {(kind.__name__, str(status)) for kind, status in wire._KINDS.items()}
    assert set(found(r"^\| `(\w+)` \| (\d{3}) \|")) == served


def test_what_errors_become_at_the_caller_is_on_the_page() -> None:
    for name, status, becomes in found(r"^\| `(\w+)` \| (\d{3}) \|.*\| (.*) \|$"):
        body = json.dumps({"error": name, "message": "why", "timestamp": 1}).encode()
        expected = name if becomes == "the same" else becomes.strip("`")
        assert type(wire.error_from_wire(int(status), body)).__name__ == expected


def test_limits_are_those_of_the_page() -> None:
    for module, name, value in found(r"^\| `(\w+)\.([A-Z_]+)` \| (\d+) \|"):
        assert getattr(MODULES[module], name) == int(value), name


def test_waits_are_those_of_the_page() -> None:
    defaults = {
        (settings.__name__, field.name): field.default
        for settings in SETTINGS
        for field in dataclasses.fields(settings)
    }
    for settings, name, value in found(r"^\| `(\w+)\.(\w+_s)` \| ([\d.]+) \|"):
        assert defaults[settings, name] == float(value), name


def test_the_example_of_a_put_is_one() -> None:
    lines = re.findall(r"^    ((?:[0-9a-f]{2} ){3}[0-9a-f]{2})(?:  (.*))?$", PAGE, re.MULTILINE)
    assert [bytes.fromhex(length) for length, _ in lines] == [struct.pack(">I", len(text)) for _, text in lines]
    body = b"".join(bytes.fromhex(length) + text.encode() for length, text in lines)

    put = parse_small(body)
    record, size, row = put_from(json.loads(put.header))

    assert (record.name, record.timestamp, size, row) == ("/a/c/o", Timestamp(1), 5, None)
    assert [bytes(piece) for piece in put.data] == [b"hello"]
    assert (put.footer.size, put.footer.xxh3) == (5, xxh3_64(b"hello"))
    assert put.footer.etag == hashlib.md5(b"hello", usedforsecurity=False).hexdigest()
    for broken in (body[:-1], body + b"\0", body[4:]):
        with pytest.raises(WireError):
            parse_small(broken)


def test_a_signature_made_by_hand_is_accepted() -> None:
    key, method, target, meaning = (
        b"k" * 32,
        "PUT",
        "/v1/objects/d1/0/1/" + 32 * "0" + "?stream=1",
        b'{"name":"/a/c/o"}',
    )
    text = (
        f"v1\n{method}\nobject-1:6200\n{target}\n1700000000123:00112233445566ff\n".encode()
        + hashlib.sha256(meaning).digest()
    )
    signature = f"v1:1700000000123:00112233445566ff:{hmac.new(key, text, hashlib.sha256).hexdigest()}"
    ClusterKey(key, now_s=lambda: 1_700_000_059.0).check(signature, method, "object-1:6200", target, meaning)


def test_a_row_made_by_hand_waits_in_the_outbox(tmp_path: Path) -> None:
    fields = {
        "version": 1,
        "account": "a",
        "container": "c",
        "replica": 2,
        "queued_ms": 1_700_000_000_000,
        "name": "ö",
        "timestamp": 1 << 63,
        "size": 5,
        "etag": "e",
        "content_type": "t/u",
        "deleted": False,
        "content_type_timestamp": 0,
        "meta_timestamp": 0,
    }
    text = json.dumps(fields, ensure_ascii=False).encode()
    name = xxh3_128("a\0c\0002\0ö".encode()).hex() + ".row"
    (tmp_path / name).write_bytes(struct.pack(">Q", xxh3_64(text)) + text)
    (tmp_path / "0.tmp").write_bytes(b"cut o")
    (tmp_path / f"{32 * '0'}.row").write_bytes(b"damaged")

    outbox = Outbox(tmp_path)

    [waiting] = outbox.waiting()
    assert (waiting.group, waiting.queued_s) == (("a", "c", 2), 1_700_000_000.0)
    assert waiting.row == ObjectRow("ö", Timestamp(1 << 63), 5, "e", "t/u")
    assert waiting.name == name
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, f"{32 * '0'}.row.damaged"])
