"""`docs/openapi.yaml` says what is there: every route and method, well-formed, and no other."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from swiftlet.api import app
from swiftlet.api.login import keystone, tokens
from swiftlet.api.tests.openapi import Operation, document, operations, resolve
from swiftlet.api.tests.proxy import Proxy

API = Path(app.__file__).parent
RESOURCES = {
    "/v1/{account}": app._ACCOUNT,
    "/v1/{account}/{container}": app._CONTAINER,
    "/v1/{account}/{container}/{object}": app._OBJECT,
}


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    return document()


@pytest.fixture(scope="module")
def every(whole: dict[str, Any]) -> list[Operation]:
    return list(operations(whole))


def references(node: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node
        for child in node.values():
            yield from references(child)
    elif isinstance(node, list):
        for child in node:
            yield from references(child)


OF_METADATA_SERVERS = {"ring_downloads.py"}
"""Requests to metadata servers, which docs/direct-access.md describes."""


def test_it_is_well_formed(whole: dict[str, Any], every: list[Operation]) -> None:
    assert whole["openapi"].startswith("3.1.")
    for reference in references(whole):
        assert resolve(whole, reference)
    ids = Counter(operation.id for operation in every)
    assert [id for id, count in ids.items() if count > 1] == []
    for operation in every:
        in_path = {parameter.name for parameter in operation.parameters if parameter.place == "path"}
        assert in_path == {piece[1:-1] for piece in operation.path.split("/") if piece.startswith("{")}
        names = Counter((parameter.name, parameter.place) for parameter in operation.parameters)
        assert [name for name, count in names.items() if count > 1] == [], operation.id


def test_every_method_of_every_resource_is_there_and_no_other(every: list[Operation]) -> None:
    described = Counter((operation.path, operation.method) for operation in every)
    routed = {(path, method) for path, handlers in RESOURCES.items() for method in [*handlers, "OPTIONS"]}
    routed |= {(path, method) for path, handlers in keystone._PATHS.items() for method in handlers}
    routed |= {(path.rstrip("/"), method) for path in app._PLAIN for method in ("GET", "HEAD")}
    routed.add((app.INFO, "OPTIONS"))
    probes = {(path, "GET") for path in ("/healthz", "/readyz")}
    assert set(described) == routed | probes
    assert set(app._PLAIN) >= tokens.PATHS


async def test_what_is_described_is_served(proxy: Proxy, every: list[Operation]) -> None:
    """None of them is 405, and 404 only with a reason that is not that there is nothing at the path."""
    for operation in every:
        path = operation.path.format(account="AUTH_test", container="c", object="o")
        async with proxy.client.request(operation.method, path, headers=proxy.token, allow_redirects=False) as answer:
            assert answer.status not in {405, 500}, operation.id
            assert "there is nothing at this path" not in await answer.text(), operation.id


def test_every_parameter_of_a_query_that_the_code_asks_for_is_there(every: list[Operation]) -> None:
    described = {one.name for operation in every for one in operation.parameters if one.place == "query"}
    asked: set[str] = set()
    for file in API.rglob("*.py"):
        if file.name in OF_METADATA_SERVERS:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
                of = node.func.value
                name = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
                if name in {"query", "asked"} and node.args and isinstance(node.args[0], ast.Constant):
                    asked.add(str(node.args[0].value))
    assert "multipart-manifest" in asked
    assert asked <= described
