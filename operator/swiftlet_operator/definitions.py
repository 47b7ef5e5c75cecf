"""Installs the custom resource definitions: creates missing ones, and replaces older ones.

They belong to no Helm release, so that a release of any name in any namespace may install them and none removes them
when it is uninstalled: with a definition Kubernetes deletes all objects of its kind. They are replaced and not applied,
because a field that an older definition had must not stay in the new one, whoever wrote it.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from swiftlet.documents import read_document
from swiftlet.errors import SettingsError
from swiftlet_operator.kube import Kube
from swiftlet_operator.manifests import DEFINITION, GROUP, Manifest, annotations_of, labels_of, name_of
from swiftlet_operator.migration import RENAMES, Renames, migrate, older_versions, stored_version
from swiftlet_operator.problems import KubeError
from swiftlet_operator.retry import until_answered

WITHIN_S = 90.0
"""Seconds for which each definition is tried, and within which all of them have to become usable."""
GONE_WITHIN_S = 15.0
"""Seconds within which a definition that is being deleted and has no objects left is gone."""
INSTALLED_VERSION = f"{GROUP}/version"
"""An annotation on every definition: the version of Swiftlet that it came with."""
KEPT = {"helm.sh/resource-policy": "keep"}
"""An annotation that Helm reads from the live object: a release that owned it once must not delete it by an upgrade."""
_POLL_S = 0.2
_OF_HELM = "meta.helm.sh/"
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(-.+)?")

_log = logging.getLogger(__name__)


def read_definitions(folder: Path) -> list[Manifest]:
    """Return the definitions in the folder's YAML files. Raises SettingsError when there is none, or something else."""
    try:
        found = [read_document(path.read_text("utf-8")) for path in sorted(folder.glob("*.yaml"))]
    except (OSError, yaml.YAMLError) as error:
        raise SettingsError(f"{folder}: {error}") from error
    if not found:
        raise SettingsError(f"{folder} has no definitions; name the folder of Swiftlet's crds")
    for one in found:
        if not isinstance(one, dict) or one.get("kind") != DEFINITION.kind or one["spec"].get("group") != GROUP:
            raise SettingsError(f"{folder} has something that is no definition of {GROUP}")
    return found


async def install(
    kube: Kube,
    definitions: Sequence[Manifest],
    version: str,
    within_s: float = WITHIN_S,
    renames: Renames = RENAMES,
) -> None:
    """Bring all definitions to `version` unless they are newer, and wait until the API server serves them.

    Where a definition loses a version, objects that are stored in it, or have fields under its names, are rewritten
    before. Raises KubeError when that could not be done within the time.
    """
    for one in definitions:
        await _wait_while_it_goes(kube, name_of(one))
        await _leave_versions(kube, one, version, within_s, renames)
        await until_answered(partial(_put, kube, one, version), within_s)
    deadline = time.monotonic() + within_s
    for one in definitions:
        while (problem := await until_answered(partial(_problem, kube, name_of(one)), within_s)) is not None:
            if time.monotonic() > deadline:
                raise KubeError(problem)
            await asyncio.sleep(_POLL_S)


def wanted(live: Manifest, definition: Manifest, version: str) -> Manifest | None:
    """Return what replaces the live definition; None when that one is of a newer version and must stay."""
    if _is_newer(annotations_of(live).get(INSTALLED_VERSION), version):
        return None
    metadata = {
        **live["metadata"],
        "labels": {**_without_helm(labels_of(live)), **labels_of(definition)},
        "annotations": {**_without_helm(annotations_of(live)), **_annotations(definition, version)},
    }
    return {**definition, "metadata": metadata}


def _annotations(definition: Manifest, version: str) -> dict[str, str]:
    return {**annotations_of(definition), **KEPT, INSTALLED_VERSION: version}


def _without_helm(marks: Mapping[str, str]) -> dict[str, str]:
    """Return labels or annotations without those that say which release owns the object."""
    return {
        name: value
        for name, value in marks.items()
        if not name.startswith(_OF_HELM) and (name, value) != ("app.kubernetes.io/managed-by", "Helm")
    }


def _is_newer(theirs: str | None, ours: str) -> bool:
    """Return whether the first version is known to follow the second; False if one has no number."""
    numbers = _numbers(theirs), _numbers(ours)
    return numbers[0] is not None and numbers[1] is not None and numbers[0] > numbers[1]


def _numbers(version: str | None) -> tuple[int, ...] | None:
    """Return numbers to compare by; a version with a suffix comes before the one without."""
    found = _VERSION.fullmatch(version or "")
    return (*(int(one) for one in found.groups()[:3]), int(found[4] is None)) if found else None


async def _put(kube: Kube, definition: Manifest, version: str) -> None:
    name = name_of(definition)
    live = await kube.get(DEFINITION, "", name)
    if live is None:
        metadata = {**definition["metadata"], "annotations": _annotations(definition, version)}
        await kube.create({**definition, "metadata": metadata})
        _log.info("the definition %s was created", name)
        return
    new = wanted(live, definition, version)
    if new is None:
        there = annotations_of(live)[INSTALLED_VERSION]
        _log.warning("the definition %s is left as it is, because version %s is newer than %s", name, there, version)
        return
    written = await kube.replace(new)
    same = written["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]
    _log.info("the definition %s %s", name, "is as it should be" if same else "was replaced")


async def _leave_versions(kube: Kube, definition: Manifest, version: str, within_s: float, renames: Renames) -> None:
    """Rewrite the objects that are stored in a version that the new definition does not have."""
    name = name_of(definition)
    live = await until_answered(partial(kube.get, DEFINITION, "", name), within_s)
    if live is None or wanted(live, definition, version) is None:
        return
    known = _versions(definition)
    if stored_version(live) not in known:
        raise KubeError(
            f"{name} stores {stored_version(live)}, which Swiftlet {version} does not know any more: upgrade to a"
            f" version first that has both {stored_version(live)} and {stored_version(definition)}"
        )
    if not known.issuperset(_versions(live)):
        await migrate(kube, name, renames, within_s)


def _versions(definition: Manifest) -> set[str]:
    """Return the versions that a definition has, and those in which objects may be stored."""
    return {one["name"] for one in definition["spec"]["versions"]} | {*older_versions(definition)}


async def _wait_while_it_goes(kube: Kube, name: str) -> None:
    """Wait for a definition that is being deleted; one that waits for its objects is only reported.

    The operator has to run for those objects to be deleted, so this must not stop an installation.
    """
    deadline = time.monotonic() + GONE_WITHIN_S
    while True:
        live = await until_answered(partial(kube.get, DEFINITION, "", name), GONE_WITHIN_S)
        if live is None or not live["metadata"].get("deletionTimestamp"):
            return
        if time.monotonic() > deadline:
            _log.warning(
                "%s is being deleted since %s and waits for its objects to go; upgrade the release again when it is"
                " gone, for the definition goes with them",
                name,
                live["metadata"]["deletionTimestamp"],
            )
            return
        await asyncio.sleep(_POLL_S)


async def _problem(kube: Kube, name: str) -> str | None:
    """Return why the API server does not serve the kind yet; None when it does."""
    live = await kube.get(DEFINITION, "", name)
    conditions: list[dict[str, Any]] = ((live or {}).get("status") or {}).get("conditions") or []
    if any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
        return None
    said = "; ".join(f"{one['type']}: {one.get('message')}" for one in conditions if one["status"] != "True")
    return f"{name} is not established: {said or 'the API server has not looked at it'}"
