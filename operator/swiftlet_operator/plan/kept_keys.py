"""The Secret with a cluster's keys, and its copy: which of them is made again from the other.

Without the hash suffix no object is found, and with another suffix in its place all of them are hidden. So the Secret
`X-keys` has a copy `X-keys-copy`, which is written after it. The copy may be one step of a rotation late; in that state
all services still accept each other's keys (`swiftlet_operator.plan.keys`).

Fault model: somebody deletes one of the two, or an entry, or puts a Secret with other keys in its place; the operator
dies between the writes of the two. Keys that differ in the suffix are never copied over each other.
"""

from __future__ import annotations

from swiftlet_operator.build.secrets import build_keys_copy
from swiftlet_operator.build.site import KEYS, Site
from swiftlet_operator.keys import copy_of, data_of, keys_of, lacking, suffixes_differ
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


def mended(world: World, site: Site) -> list[Patch]:
    """Return patches that give a Secret restored by hand its labels, its finalizer and lost entries back."""
    live, copy = keys_of(world), copy_of(world)
    if live is None or is_going(live):
        return []
    change: Manifest = {}
    labels = {**site.labels, COMPONENT_LABEL: KEYS}
    if not labels.items() <= labels_of(live).items():
        change["labels"] = labels
    if DATA_FINALIZER not in finalizers_of(live):
        change["finalizers"] = [*finalizers_of(live), DATA_FINALIZER]
    data = {key: data_of(copy)[key] for key in lacking(live) if data_of(copy).get(key)}
    if not change and not data:
        return []
    patch: Manifest = {"metadata": {"resourceVersion": live["metadata"].get("resourceVersion"), **change}}
    return [Patch(SECRET, name_of(live), patch | ({"data": data} if data else {}))]


def copied(world: World, site: Site) -> list[Manifest]:
    """Return the copy as it should be; none while the keys are incomplete, or have another suffix than it."""
    live = keys_of(world)
    if live is None or lacking(live) or suffixes_differ(world):
        return []
    notes = {key: value for key, value in annotations_of(live).items() if "/key-" in key}
    return [build_keys_copy(site, data_of(live), notes)]
