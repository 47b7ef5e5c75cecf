"""Brings objects to the version that their definition stores, so that the definition may lose an older one.

Definitions convert by the strategy None: the API server changes `apiVersion` and nothing else, and what is stored stays
as it is until somebody writes it. `status.storedVersions` of the definition has the versions in which objects may be
stored, and the API server refuses a definition without one of them. A field whose name changes is in the schemas of
both versions under both names until the older version goes; then objects that still have the old name get the new one.
The reasons are in docs/design/2026-11-24-crd-versions.md.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from swiftlet_operator.kube import Kube
from swiftlet_operator.manifests import DEFINITION, Kind, Manifest
from swiftlet_operator.problems import KubeConflict, KubeError, KubeUnavailable
from swiftlet_operator.retry import until_answered

WITHIN_S = 90.0
"""Seconds for which each request is tried."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rename:
    """A field that has two names, each a path such as `spec.user`."""

    old: str
    new: str


Renames = Mapping[str, Sequence[Rename]]
RENAMES: Renames = {}
"""By the definition's name, the fields that lose their old name with the older version.

v1alpha1 is the only version of all kinds, so there are none.
"""


def stored_version(definition: Manifest) -> str:
    """Return the version in which objects are written."""
    return next(str(one["name"]) for one in definition["spec"]["versions"] if one["storage"])


def older_versions(definition: Manifest) -> list[str]:
    """Return the other versions in which objects may still be stored."""
    stored = (definition.get("status") or {}).get("storedVersions") or []
    return [str(one) for one in stored if one != stored_version(definition)]


async def migrate(kube: Kube, definition: str, renames: Renames = RENAMES, within_s: float = WITHIN_S) -> int:
    """Write objects that may be stored in an older version or have a field's old name; then forget the older versions.

    Returns how many objects were written. Raises KubeError when one can't be: nothing is forgotten then, and a second
    run does all of it again.
    """
    live = await until_answered(partial(kube.get, DEFINITION, "", definition), within_s)
    fields = renames.get(definition, ())
    if live is None:
        _log.warning("the definition %s does not exist", definition)
        return 0
    if not (older_versions(live) or fields):
        _log.info("%s: all objects are stored as %s", definition, stored_version(live))
        return 0
    older = older_versions(live)
    kind = _stored_kind(live)
    await until_answered(partial(_must_serve, kube, kind), within_s)
    count = 0
    for one in await until_answered(partial(kube.list, kind, None), within_s):
        if older or renaming(one, fields):
            await _rewrite(kube, kind, one["metadata"], fields, within_s)
            count += 1
    if older:
        await until_answered(partial(_forget, kube, definition, stored_version(live)), within_s)
    _log.info("%s: %d objects rewritten as %s", definition, count, stored_version(live))
    return count


def renaming(manifest: Manifest, renames: Sequence[Rename]) -> Manifest:
    """Return the merge patch that gives fields their new name; if an object has both names the new one's
    value stays.
    """
    change: Manifest = {}
    for one in renames:
        value = _at(manifest, one.old)
        if value is None:
            continue
        _set(change, one.old, None)
        if _at(manifest, one.new) is None:
            _set(change, one.new, value)
    return change


def _at(manifest: Mapping[str, Any], path: str) -> Any:
    found: Any = manifest
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _set(manifest: Manifest, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for name in parents:
        manifest = manifest.setdefault(name, {})
    manifest[last] = value


def _stored_kind(definition: Manifest) -> Kind:
    spec = definition["spec"]
    return Kind(f"{spec['group']}/{stored_version(definition)}", spec["names"]["kind"], spec["names"]["plural"])


async def _must_serve(kube: Kube, kind: Kind) -> None:
    """Raise KubeError until the API server serves the version, as a list of an unserved one would be empty."""
    if not await kube.serves(kind):
        raise KubeUnavailable(
            f"{kind.plural} are stored as {kind.api_version} and not served: say `served: true` there"
        )


async def _rewrite(
    kube: Kube, kind: Kind, metadata: Mapping[str, Any], renames: Sequence[Rename], within_s: float
) -> None:
    """Make the API server store one object again; a patch without a change is enough."""
    namespace, name = metadata["namespace"], metadata["name"]

    async def write() -> None:
        live = await kube.get(kind, namespace, name)
        change = renaming(live, renames) if live is not None else {}
        if live is not None and change:
            change["metadata"] = {"resourceVersion": live["metadata"]["resourceVersion"]}
        await kube.patch(kind, namespace, name, change)

    try:
        await until_answered(write, within_s)
    except KubeError as error:
        raise KubeError(f"{kind.plural} {namespace}/{name} stays as it was: {error}") from error


async def _forget(kube: Kube, name: str, version: str) -> None:
    live = await kube.get(DEFINITION, "", name)
    if live is None:
        return
    if stored_version(live) != version:
        raise KubeConflict(f"{name} has come to store {stored_version(live)} meanwhile")
    change = {
        "metadata": {"resourceVersion": live["metadata"]["resourceVersion"]},
        "status": {"storedVersions": [version]},
    }
    await kube.patch(DEFINITION, "", name, change, "status")
