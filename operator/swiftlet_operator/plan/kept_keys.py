"""The Secret with a cluster's keys, and its copy: which of them is made again from the other.

Without the hash suffix no object is found, and another in its place would hide all of them. So the Secret `X-keys` has
a copy `X-keys-copy`, written behind it: the copy may be one step of a rotation late, which is a state in which all
services still accept each other's keys (`swiftlet_operator.plan.keys`).

Fault model: somebody deletes one of the two, or an entry, or puts a Secret with other keys in its place; the operator
dies between the writes of the two. Keys that differ in the suffix are never copied over each other.
"""

from __future__ import annotations

from collections.abc import Mapping

from swiftlet_operator.build.secrets import KEY_ENTRIES, build_keys_copy, keys_copy_name, keys_name
from swiftlet_operator.build.settings import HASH_SUFFIX
from swiftlet_operator.build.site import KEYS, Site
from swiftlet_operator.manifests import (
    COMPONENT_LABEL,
    DATA_FINALIZER,
    SECRET,
    Manifest,
    annotations_of,
    finalizers_of,
    is_going,
    labels_of,
    name_of,
)
from swiftlet_operator.plan.actions import Patch
from swiftlet_operator.world import World


def keys_of(world: World) -> Manifest | None:
    """The live Secret with the keys."""
    return world.child(SECRET, keys_name(world.cluster.meta.name))


def copy_of(world: World) -> Manifest | None:
    """The live Secret with the copy of the keys."""
    return world.child(SECRET, keys_copy_name(world.cluster.meta.name))


def lacking(secret: Manifest | None) -> list[str]:
    """The entries of keys that a Secret does not have."""
    return [key for key in KEY_ENTRIES if not _data(secret).get(key)]


def suffixes_differ(world: World) -> bool:
    """Whether the Secret and its copy have different hash suffixes."""
    values = [_data(one).get(HASH_SUFFIX) for one in (keys_of(world), copy_of(world))]
    return None not in values and "" not in values and values[0] != values[1]


def made_again(world: World) -> Manifest | None:
    """The Secret with the keys as its copy has it; None when it is there, or when there is no whole copy."""
    copy = copy_of(world)
    if keys_of(world) is not None or copy is None or lacking(copy):
        return None
    metadata = {
        "name": keys_name(world.cluster.meta.name),
        "namespace": world.cluster.meta.namespace,
        "labels": labels_of(copy),
        "annotations": {key: value for key, value in annotations_of(copy).items() if "/key-" in key},
        "finalizers": [DATA_FINALIZER],
    }
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": _data(copy)}


def mended(world: World, site: Site) -> list[Patch]:
    """What gives a Secret that somebody restored by hand its labels, its finalizer and lost entries back."""
    live, copy = keys_of(world), copy_of(world)
    if live is None or is_going(live):
        return []
    change: Manifest = {}
    labels = {**site.labels, COMPONENT_LABEL: KEYS}
    if not labels.items() <= labels_of(live).items():
        change["labels"] = labels
    if DATA_FINALIZER not in finalizers_of(live):
        change["finalizers"] = [*finalizers_of(live), DATA_FINALIZER]
    data = {key: _data(copy)[key] for key in lacking(live) if _data(copy).get(key)}
    if not change and not data:
        return []
    patch: Manifest = {"metadata": {"resourceVersion": live["metadata"].get("resourceVersion"), **change}}
    return [Patch(SECRET, name_of(live), patch | ({"data": data} if data else {}))]


def copied(world: World, site: Site) -> list[Manifest]:
    """The copy as it should be; none while the keys are not whole, or differ from it in the suffix."""
    live = keys_of(world)
    if live is None or lacking(live) or suffixes_differ(world):
        return []
    notes = {key: value for key, value in annotations_of(live).items() if "/key-" in key}
    return [build_keys_copy(site, _data(live), notes)]


def _data(secret: Manifest | None) -> Mapping[str, str]:
    return (secret or {}).get("data") or {}
