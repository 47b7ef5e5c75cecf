"""`docs/openapi.yaml` as operations, for tests that hold it against the routes and make requests from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).parents[4] / "docs" / "openapi.yaml"
METHODS = frozenset({"get", "head", "put", "post", "delete", "options", "patch", "trace"})


@dataclass(frozen=True)
class Parameter:
    """A part of the path, a query parameter or a header."""

    name: str
    place: str
    """`path`, `query` or `header`."""
    schema: Mapping[str, Any]
    refused_with: int | None
    """The status of requests that have it, for what is not supported."""
    prefix: bool
    """Whether the header's name goes on."""


@dataclass(frozen=True)
class Operation:
    """One method of one path."""

    id: str
    method: str
    path: str
    parameters: tuple[Parameter, ...]
    bodies: Mapping[str, Mapping[str, Any]]
    """Schemas by media type."""
    statuses: frozenset[int]
    open: bool
    """Whether it takes no token."""


def document() -> dict[str, Any]:
    """The whole file."""
    loaded: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return loaded


def resolve(whole: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a node says, or what it refers to; KeyError when that is not there."""
    reference = node.get("$ref")
    if reference is None:
        return node
    found: Any = whole
    for step in reference.removeprefix("#/").split("/"):
        found = found[step]
    return resolve(whole, found)


def operations(whole: Mapping[str, Any]) -> Iterator[Operation]:
    """All operations, methods of Swift's own (`x-methods`) included."""
    for path, item in whole["paths"].items():
        methods = {name: node for name, node in item.items() if name in METHODS} | item.get("x-methods", {})
        for method, node in methods.items():
            given = [*item.get("parameters", []), *node.get("parameters", [])]
            body = resolve(whole, node.get("requestBody", {}))
            yield Operation(
                node["operationId"],
                method.upper(),
                path,
                tuple(_parameter(resolve(whole, one)) for one in given),
                {kind: content["schema"] for kind, content in body.get("content", {}).items()},
                frozenset(int(status) for status in node["responses"]),
                node.get("security") == [],
            )


def _parameter(node: Mapping[str, Any]) -> Parameter:
    return Parameter(node["name"], node["in"], node["schema"], node.get("x-not-supported"), bool(node.get("x-prefix")))
