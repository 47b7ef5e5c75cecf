"""`docs/wire.md` against the servers: tables, and a signature made by hand."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import re
from pathlib import Path
from types import ModuleType

from aiohttp import web

from swiftlet.listing import replica
from swiftlet.servers.containers.account_reports import ReportSettings
from swiftlet.servers.containers.container_server import ContainerServer, add_container_routes
from swiftlet.servers.objects.object_server import ObjectServer, ObjectServerSettings, add_object_routes
from swiftlet.testing.storage.object_conformance import RowRecorder
from swiftlet.transport import http_client, listing_wire, object_messages, row_wire, wire
from swiftlet.transport.http_client import HttpSettings
from swiftlet.transport.signing import ClusterKey
from swiftlet.web import statusz
from swiftlet.web.serve import ServeOptions

PAGE = (Path(__file__).resolve().parents[4] / "docs/wire.md").read_text("utf-8")
MODULES: dict[str, ModuleType] = {
    "wire": wire,
    "listing_wire": listing_wire,
    "row_wire": row_wire,
    "http_client": http_client,
    "object_messages": object_messages,
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
    objects, containers = web.Application(), web.Application()
    add_object_routes(objects, ObjectServer({}, RowRecorder()))
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


def test_a_signature_made_by_hand_is_accepted() -> None:
    key, method, target, meaning = (
        b"k" * 32,
        "POST",
        "/v1/objects/d1/judge",
        b'{"doubted":[],"proved":[],"epoch":0,"whole":false}',
    )
    text = (
        f"v1\n{method}\nobject-1:6200\n{target}\n1700000000123:00112233445566ff\n".encode()
        + hashlib.sha256(meaning).digest()
    )
    signature = f"v1:1700000000123:00112233445566ff:{hmac.new(key, text, hashlib.sha256).hexdigest()}"
    ClusterKey(key, now_s=lambda: 1_700_000_059.0).check(signature, method, "object-1:6200", target, meaning)
