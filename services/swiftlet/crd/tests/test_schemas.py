"""The CRDs keep the house's rules, agree with the typed views in every limit and default, and the examples fit both."""

from __future__ import annotations

from typing import Any

import pytest

from swiftlet.crd import KINDS, parse_resource
from swiftlet.crd.base import View
from swiftlet.crd.tests.openapi import Schema, load_crds, load_examples, misfits, schema_of, walk, with_defaults

CRDS = load_crds()
EXAMPLES = load_examples()
NODES = [(kind, path, node) for kind, crd in CRDS.items() for path, node in walk(schema_of(crd))]
NAMELESS = (
    *(".tolerations", ".clients", ".peers", ".dns", ".scrapers", ".to", ".ports", ".matchExpressions"),
    *(".parentRefs", "Terms", "Execution", ".matchFields"),
)
"""Lists whose items have no name, as in Kubernetes' own objects."""
SAME_KEYWORDS = (
    "minimum",
    "maximum",
    "pattern",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
)


def test_there_is_a_crd_for_every_kind_and_it_has_the_kinds_names() -> None:
    assert set(CRDS) == set(KINDS)
    for kind in KINDS.values():
        crd = CRDS[kind.name]
        names = crd["spec"]["names"]
        assert crd["metadata"]["name"] == f"{kind.plural}.swiftlet.io"
        assert (names["plural"], names["shortNames"], names["categories"]) == (kind.plural, [kind.short], ["swiftlet"])
        assert crd["spec"]["scope"] == "Namespaced"


@pytest.mark.parametrize("kind", CRDS)
def test_columns_select_conditions_by_type_and_read_what_there_is(kind: str) -> None:
    (version,) = CRDS[kind]["spec"]["versions"]
    columns = {column["name"]: column for column in version["additionalPrinterColumns"]}
    known = {path for path, _ in walk(schema_of(CRDS[kind]))}

    scale = version["subresources"].get("scale", {})
    assert version["subresources"] == {"status": {}} | ({"scale": scale} if scale else {})
    assert set(scale.values()) <= known
    assert columns["Ready"]["jsonPath"] == '.status.conditions[?(@.type=="Ready")].status'
    assert columns["Message"]["priority"] == 1
    for name, column in columns.items():
        path = column["jsonPath"].replace('[?(@.type=="Ready")]', "[]").replace('[?(@.type=="InUse")]', "[]")
        assert path in known or path == ".metadata.creationTimestamp", name
        assert "description" in column or name == "Age"


def test_everything_is_described() -> None:
    silent = [
        f"{kind}{path}"
        for kind, path, node in NODES
        if not node.get("description")
        and path != ".metadata"
        and (node.get("type") == "object" or path[-1:] not in "]}")
    ]
    assert silent == []


def test_descriptions_state_the_default() -> None:
    wrong = []
    for kind, path, node in NODES:
        default = node.get("default")
        if default is None or isinstance(default, dict):
            continue
        text = str(default).lower() if isinstance(default, bool) else str(default).replace("'", "")
        if f"Default: {text}" not in node["description"]:
            wrong.append(f"{kind}{path}: {node['description']}")
    assert wrong == []


def test_everything_that_can_grow_has_a_limit() -> None:
    endless = []
    for kind, path, node in NODES:
        limited = {
            "array": "maxItems" in node and node.get("x-kubernetes-list-type") in {"map", "set", "atomic"},
            "string": bool({"maxLength", "enum"} & set(node)) or node.get("format") == "date-time",
            "object": "additionalProperties" not in node or "maxProperties" in node,
        }
        if path not in {".kind", ".apiVersion"} and not limited.get(str(node.get("type")), True):
            endless.append(f"{kind}{path}")
    assert endless == []


def test_lists_of_named_things_are_maps_by_their_name() -> None:
    wrong = []
    for kind, path, node in NODES:
        if node.get("type") == "array" and node["items"].get("properties") and not path.endswith(NAMELESS):
            keys = node.get("x-kubernetes-list-map-keys", [])
            if node["x-kubernetes-list-type"] != "map" or not set(keys) <= set(node["items"]["required"]):
                wrong.append(f"{kind}{path}")
    assert wrong == []


def test_every_rule_says_what_to_do() -> None:
    for kind, path, node in NODES:
        for rule in node.get("x-kubernetes-validations", []):
            assert 20 < len(rule["message"]) < 250, (kind, path, rule)
            assert not rule["message"].endswith("."), (kind, path, rule)
            assert "\n" not in rule["message"], (kind, path, rule)


# --- the views -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CRDS)
def test_the_views_have_the_same_fields_limits_and_defaults(kind: str) -> None:
    spec = schema_of(CRDS[kind])["properties"]["spec"]
    view = KINDS[kind].spec.model_json_schema(by_alias=True)

    assert list(differences(spec, view, view.get("$defs", {}), "spec")) == []


def differences(crd: Schema, view: Schema, definitions: Schema, path: str) -> list[str]:
    """Where a CRD's schema and a view's are not the same."""
    found = []
    default = with_defaults(crd, crd["default"]) if "default" in crd else None
    if _bare(default) != _bare(view.get("default")):
        found.append(f"{path}: default {default!r} and {view.get('default')!r}")
    view = _resolved(view, definitions)
    if crd.get("type", "string") != view.get("type"):
        return [*found, f"{path}: {crd.get('type')} and {view.get('type')}"]
    found += [
        f"{path}: {word} {crd.get(word)} and {view.get(word)}"
        for word in SAME_KEYWORDS
        if crd.get(word) != view.get(word)
    ]
    if sorted(crd.get("enum", [])) != sorted(view.get("enum", [])):
        found.append(f"{path}: enum {crd.get('enum')} and {view.get('enum')}")
    if sorted(crd.get("required", [])) != sorted(view.get("required", [])):
        found.append(f"{path}: required {crd.get('required')} and {view.get('required')}")
    ours, theirs = crd.get("properties", {}), view.get("properties", {})
    found += [f"{path}.{name}: only in one of the two" for name in sorted(set(ours) ^ set(theirs))]
    for name in sorted(set(ours) & set(theirs)):
        found += differences(ours[name], theirs[name], definitions, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if isinstance(crd.get(inner), dict):
            found += differences(crd[inner], view.get(inner, {}), definitions, f"{path}[]")
    return found


def _resolved(view: Schema, definitions: Schema) -> Schema:
    """Without references, and without the null that an optional field may be."""
    while True:
        if "$ref" in view:
            view = definitions[view["$ref"].rsplit("/", 1)[-1]]
        elif "anyOf" in view:
            (view,) = [one for one in view["anyOf"] if one.get("type") != "null"]
        else:
            return view


def _bare(value: Any) -> Any:
    """Without what is empty: an empty list and a missing one mean the same in our specs."""
    if isinstance(value, dict):
        value = {name: bare for name, item in value.items() if (bare := _bare(item)) is not None}
    elif isinstance(value, list):
        value = [_bare(item) for item in value]
    return None if value is None or value in ({}, []) else value


# --- the examples ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("file", "manifest"), EXAMPLES, ids=[f"{f}-{m['metadata']['name']}" for f, m in EXAMPLES])
def test_examples_fit_the_schema_and_mean_the_same_with_defaults_filled_in(file: str, manifest: Schema) -> None:
    schema = schema_of(CRDS[manifest["kind"]])
    stored = with_defaults(schema, manifest)

    assert list(misfits(schema, manifest, file)) == []
    assert list(misfits(schema, stored, file)) == []
    assert parse_resource(manifest).spec == parse_resource(stored).spec
    assert isinstance(parse_resource(stored).spec, View)


def test_the_examples_show_every_kind() -> None:
    assert {manifest["kind"] for _, manifest in EXAMPLES} == set(KINDS)
    names = ("minimal", "storagecluster", "full", "direct-access", "bench-workers", "erasure-coding")
    assert {file for file, _ in EXAMPLES} == {f"{name}.yaml" for name in names}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"pols": []}, "spec.pols: unknown"),
        ({"pools": []}, "spec.pools: 0 items"),
        ({"pools": [{"name": "a"}]}, "spec.pools[0].replicas: missing"),
        ({"paused": "yes"}, "spec.paused: 'yes' is no boolean"),
        ({"rings": {"partPower": 99}}, "spec.rings.partPower: 99 is out of range"),
        ({"deletionPolicy": "Keep"}, "spec.deletionPolicy: 'Keep' is not in ['Retain', 'Delete']"),
        ({"image": "a b"}, "spec.image: 'a b' does not match ^[^\\s]+$"),
        ({"pools": [{"name": "a", "replicas": 1, "storage": {"size": "1Gi"}}] * 2}, "spec.pools: the same item twice"),
    ],
)
def test_the_schema_checker_finds_mistakes(change: Schema, found: str) -> None:
    schema = schema_of(CRDS["StorageCluster"])["properties"]["spec"]
    good: Schema = {"pools": [{"name": "a", "replicas": 1, "storage": {"size": "1Gi"}}]}

    assert list(misfits(schema, good, "spec")) == []
    assert found in list(misfits(schema, good | change, "spec"))
