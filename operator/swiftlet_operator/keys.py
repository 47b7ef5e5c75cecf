"""What exists of a cluster's keys: the Secret `X-keys`, and its copy.

Checks and plans read it; `swiftlet_operator.plan.kept_keys` decides what is written of it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from swiftlet.errors import SettingsError
from swiftlet.settings.secret import parse_keys
from swiftlet_operator.build.secrets import KEY_ENTRIES, keys_copy_name, keys_name
from swiftlet_operator.build.settings import CLUSTER_KEY, HASH_SUFFIX
from swiftlet_operator.manifests import (
    COMPONENT_LABEL,
    DATA_FINALIZER,
    SECRET,
    Manifest,
    annotations_of,
    cluster_labels,
    labels_of,
)
from swiftlet_operator.world import World


def keys_of(world: World) -> Manifest | None:
    """Return the live Secret with the keys."""
    return world.child(SECRET, keys_name(world.cluster.meta.name))


def copy_of(world: World) -> Manifest | None:
    """Return the live Secret with the copy of the keys."""
    return world.child(SECRET, keys_copy_name(world.cluster.meta.name))


def cluster_keys(secret: Manifest | None) -> tuple[bytes, ...]:
    """Return the cluster keys in a Secret, the signing one first; none when there are none that can be read."""
    try:
        return parse_keys(base64.b64decode(data_of(secret).get(CLUSTER_KEY, ""), validate=True), CLUSTER_KEY)
    except (binascii.Error, ValueError, SettingsError):
        return ()


def lacking(secret: Manifest | None) -> list[str]:
    """Return the entries of keys that a Secret does not have."""
    return [key for key in KEY_ENTRIES if not data_of(secret).get(key)]


def suffixes_differ(world: World) -> bool:
    """Return whether the Secret and its copy have different hash suffixes."""
    values = [data_of(one).get(HASH_SUFFIX) for one in (keys_of(world), copy_of(world))]
    return None not in values and "" not in values and values[0] != values[1]


def are_lost(world: World) -> bool:
    """Return whether neither Secret has the keys, although volumes or rings of the cluster exist."""
    copy = copy_of(world)
    if keys_of(world) is not None or (copy is not None and not lacking(copy)):
        return False
    builders = any(labels_of(one).get(COMPONENT_LABEL) == "builder" for one in world.children.values())
    return bool(world.claims) or builders


def made_again(world: World) -> Manifest | None:
    """Return the Secret with the keys from its copy or a sealed copy; None when it exists, or nothing has it whole."""
    copy = copy_of(world)
    if copy is None or lacking(copy):
        copy = world.unsealed.secret
    if keys_of(world) is not None or copy is None or lacking(copy):
        return None
    name = world.cluster.meta.name
    metadata = {
        "name": keys_name(name),
        "namespace": world.cluster.meta.namespace,
        "labels": {**cluster_labels(name), COMPONENT_LABEL: "keys"},
        "annotations": {key: value for key, value in annotations_of(copy).items() if "/key-" in key},
        "finalizers": [DATA_FINALIZER],
    }
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": data_of(copy)}


def data_of(secret: Manifest | None) -> Mapping[str, str]:
    """Return the entries of a Secret in base64; empty for None."""
    return (secret or {}).get("data") or {}
