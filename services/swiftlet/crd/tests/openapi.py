"""As much of structural schemas as our CRDs use: walking them, filling in defaults, and finding what does not fit.

The API server does all of this for real in the operator's tests; here it takes milliseconds and needs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[4]
Schema = dict[str, Any]

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def load_crds() -> dict[str, Schema]:
    """The CRDs by kind."""
    crds = [yaml.load(path.read_text("utf-8"), yaml.CSafeLoader) for path in sorted((ROOT / "crds").glob("*.yaml"))]
    return {crd["spec"]["names"]["kind"]: crd for crd in crds}


def load_examples() -> list[tuple[str, Schema]]:
    """Every custom resource of every example, with the file's name."""
    return [
        (path.name, document)
        for path in sorted((ROOT / "examples").glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text("utf-8"))
        if document["apiVersion"].startswith("swiftlet.io/")
    ]


def schema_of(crd: Schema) -> Schema:
    """The schema of the one version that there is."""
    (version,) = crd["spec"]["versions"]
    schema: Schema = version["schema"]["openAPIV3Schema"]
    return schema


def walk(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every schema in a schema, with its path; `[]` for the items of lists, `{}` for the values of maps."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    if "items" in schema:
        yield from walk(schema["items"], path + "[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from walk(schema["additionalProperties"], path + "{}")


def with_defaults(schema: Schema, value: Any) -> Any:
    """`value` as the API server would store it."""
    if isinstance(value, dict):
        filled = dict(value)
        for name, child in schema.get("properties", {}).items():
            if name not in filled and "default" in child:
                filled[name] = child["default"]
            if name in filled:
                filled[name] = with_defaults(child, filled[name])
        return filled
    if isinstance(value, list):
        return [with_defaults(schema["items"], item) for item in value]
    return value


def misfits(schema: Schema, value: Any, path: str = "") -> Iterator[str]:
    """What in `value` the schema does not allow; rules in CEL are not looked at."""
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        fits = isinstance(value, (int, str)) and not isinstance(value, bool)
    else:
        fits = isinstance(value, _TYPES[str(kind)]) and (kind == "boolean" or not isinstance(value, bool))
    if not fits:
        yield f"{path}: {value!r} is no {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is not in {schema['enum']}"
    if isinstance(value, dict):
        yield from _object_misfits(schema, value, path)
    elif isinstance(value, list):
        yield from _list_misfits(schema, value, path)
    elif isinstance(value, str):
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            yield f"{path}: {len(value)} characters"
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{path}: {value!r} does not match {schema['pattern']}"
    elif not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{path}: {value} is out of range"


def _object_misfits(schema: Schema, value: Schema, path: str) -> Iterator[str]:
    known = schema.get("properties", {})
    others = schema.get("additionalProperties")
    # The API server knows what metadata looks like; the schema only says that it is there.
    if "properties" not in schema and others is None:
        return
    yield from (f"{path}.{name}: missing" for name in schema.get("required", []) if name not in value)
    for name, item in value.items():
        child = known.get(name, others)
        if child is None:
            yield f"{path}.{name}: unknown"
        else:
            yield from misfits(child, item, f"{path}.{name}")
    if len(value) > schema.get("maxProperties", len(value)):
        yield f"{path}: {len(value)} entries"


def _list_misfits(schema: Schema, value: list[Any], path: str) -> Iterator[str]:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        yield f"{path}: {len(value)} items"
    for number, item in enumerate(value):
        yield from misfits(schema["items"], item, f"{path}[{number}]")
    keys = schema.get("x-kubernetes-list-map-keys")
    identities = [tuple(item[key] for key in keys) if keys else item for item in value]
    if schema["x-kubernetes-list-type"] != "atomic" and any(identities.count(one) > 1 for one in identities):
        yield f"{path}: the same item twice"
