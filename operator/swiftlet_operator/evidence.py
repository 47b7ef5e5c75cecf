"""Reads that are made only while pods or claims are in trouble: StorageClasses, and events of a few objects.

At rest there are none. Events have no index by object, so for each question the API server searches the namespace's;
therefore the questions are few, each with a limit. With a role that is too old to list them only the sentences about
the causes are missing.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from swiftlet_operator.kube import Kube
from swiftlet_operator.manifests import STORAGE_CLASS, Manifest
from swiftlet_operator.problems import KubeForbidden
from swiftlet_operator.trouble import Evidence, Seen, questions, waiting_claims

_log = logging.getLogger(__name__)


async def gather(kube: Kube, namespace: str, seen: Seen) -> Evidence:
    """Return what is needed to say why pods and claims don't get on. Raises KubeError."""
    classes = await _classes(kube) if waiting_claims(seen) else None
    asked = questions(seen)
    answers = await asyncio.gather(*(_events(kube, namespace, one.kind, one.name) for one in asked))
    return replace(seen.evidence, classes=classes, events=tuple(event for found in answers for event in found))


async def _classes(kube: Kube) -> tuple[Manifest, ...] | None:
    try:
        return tuple(await kube.list(STORAGE_CLASS, None))
    except KubeForbidden as error:
        _log.warning("StorageClasses can't be read: %s", error)
        return None


async def _events(kube: Kube, namespace: str, kind: str, name: str) -> list[Manifest]:
    try:
        return await kube.events(namespace, kind, name)
    except KubeForbidden as error:
        _log.warning("the events of %s %s can't be read: %s", kind, name, error)
        return []
