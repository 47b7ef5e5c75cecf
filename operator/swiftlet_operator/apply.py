"""Writes of one reconcile: only what differs, each after a check that this operator leads.

A child has the digest of what was applied. It is left alone when the digest is that of the wanted manifest and every
field of that manifest is still in the live object. So a field that is no longer wanted is noticed as well as one that
somebody changed. Fields that others added are theirs.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from swiftlet.crd import parse_quantity
from swiftlet.crd.conditions import rfc3339
from swiftlet.errors import SettingsError
from swiftlet_operator.kube import Kube
from swiftlet_operator.manifests import (
    APPLIED,
    CLUSTER,
    EVENT,
    FINALIZER,
    MANAGER,
    Manifest,
    annotations_of,
    digest_of,
    kind_of,
    name_of,
)
from swiftlet_operator.plan import Actions, Event
from swiftlet_operator.plan.actions import Patch
from swiftlet_operator.problems import KubeConflict, KubeError
from swiftlet_operator.world import World

_MERGED = frozenset(
    {
        "containers",
        "env",
        "finalizers",
        "imagePullSecrets",
        "ownerReferences",
        "ports",
        "tolerations",
        "topologySpreadConstraints",
        "volumeMounts",
        "volumes",
    }
)
"""Lists of Kubernetes objects to which others may add entries."""
_QUANTITIES = frozenset({"requests", "limits"})
_MAX_EVENT_CHARS = 1000
AT_A_TIME = 4
"""Chains of a cluster that are applied at the same time."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Written:
    """The writes of one reconcile, and those that failed."""

    count: int = 0
    failures: list[str] = field(default_factory=list)


async def apply(kube: Kube, world: World, actions: Actions, may_write: Callable[[], None]) -> Written:
    """Carry out a plan except for statuses and the release. A failure leaves the rest alone; NotLeader ends it.

    `may_write` raises NotLeader when another operator may be writing.
    """
    written = Written()
    for manifest in actions.first:
        if not await _create(kube, manifest, may_write, written):
            return written
    if not await _patch(kube, world, actions.guard, may_write, written):
        return written
    for manifest in actions.create:
        await _create(kube, manifest, may_write, written)
    turns = asyncio.Semaphore(AT_A_TIME)
    chains = (_apply_chain(kube, world, chain, may_write, written, turns) for chain in actions.apply)
    for error in await asyncio.gather(*chains, return_exceptions=True):
        if error is not None:
            raise error
    await _patch(kube, world, actions.patch, may_write, written)
    for live, grace_s in (*((one, None) for one in actions.delete), *((one, 0) for one in actions.force)):
        may_write()
        with _noting(written, f"deleting {live['kind']} {name_of(live)}"):
            namespace, uid = world.cluster.meta.namespace, live["metadata"]["uid"]
            await kube.delete(kind_of(live), namespace, name_of(live), uid, grace_s)
            written.count += 1
    return written


async def announce(kube: Kube, world: World, events: Sequence[Event], may_write: Callable[[], None]) -> int:
    """Write events of the cluster; return how many could be written. Nothing depends on events."""
    count = 0
    for event in events:
        may_write()
        try:
            await kube.create(_event(world, event))
            count += 1
        except KubeError as error:
            _log.warning("the event %s could not be written: %s", event.reason, error)
    return count


async def release(kube: Kube, world: World, may_write: Callable[[], None]) -> None:
    """Remove the cluster's finalizer."""
    may_write()
    meta = world.cluster.meta
    rest = [one for one in meta.finalizers if one != FINALIZER]
    change = {"resourceVersion": world.resource_version, "finalizers": rest}
    await kube.patch(CLUSTER, meta.namespace, meta.name, {"metadata": change})


async def _patch(
    kube: Kube, world: World, patches: Sequence[Patch], may_write: Callable[[], None], written: Written
) -> bool:
    """Write each patch; return whether all could be written."""
    done = True
    for patch in patches:
        may_write()
        with _noting(written, f"{patch.kind.kind} {patch.name}") as noted:
            await kube.patch(patch.kind, world.cluster.meta.namespace, patch.name, patch.change)
            written.count += 1
        done = done and not noted.failed
    return done


async def _create(kube: Kube, manifest: Manifest, may_write: Callable[[], None], written: Written) -> bool:
    may_write()
    with _noting(written, f"{manifest['kind']} {name_of(manifest)}") as noted:
        try:
            await kube.create(manifest)
            written.count += 1
        except KubeConflict:
            _log.info("%s %s exists already", manifest["kind"], name_of(manifest))
    return not noted.failed


async def _apply(kube: Kube, world: World, manifest: Manifest, may_write: Callable[[], None], written: Written) -> bool:
    wanted = with_digest(manifest)
    if up_to_date(world.child(kind_of(manifest), name_of(manifest)), wanted):
        return True
    may_write()
    with _noting(written, f"{manifest['kind']} {name_of(manifest)}") as noted:
        await kube.apply(wanted)
        written.count += 1
    return not noted.failed


async def _apply_chain(
    kube: Kube,
    world: World,
    chain: Sequence[Manifest],
    may_write: Callable[[], None],
    written: Written,
    turns: asyncio.Semaphore,
) -> None:
    """Apply manifests one after the other; a failure leaves those after it alone."""
    for manifest in chain:
        async with turns:
            if not await _apply(kube, world, manifest, may_write, written):
                return


class _noting:
    """Records a KubeError as a failure."""

    def __init__(self, written: Written, what: str) -> None:
        self._written, self._what = written, what
        self.failed = False

    def __enter__(self) -> _noting:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, KubeError):
            return False
        self.failed = True
        self._written.failures.append(f"{self._what}: {error}")
        return True


def with_digest(manifest: Manifest) -> Manifest:
    """Return the manifest with its own digest in an annotation."""
    metadata = manifest["metadata"]
    notes = {**annotations_of(manifest), APPLIED: digest_of(manifest)}
    return {**manifest, "metadata": {**metadata, "annotations": notes}}


def up_to_date(live: Manifest | None, wanted: Manifest) -> bool:
    """Return whether the live object is as it was applied, and was applied as it is wanted."""
    return live is not None and covers(live, wanted)


def covers(live: Any, wanted: Any, name: str = "") -> bool:
    """Return whether the live value has everything that is wanted; `name` is the field's."""
    if live == wanted:
        # Most of an object is as it was applied, and comparing it as a whole is quick.
        return True
    if isinstance(wanted, Mapping):
        if not isinstance(live, Mapping):
            return not wanted and live is None
        if name in _QUANTITIES:
            return all(key in live and _same_quantity(live[key], value) for key, value in wanted.items())
        return all(covers(live.get(key), value, key) for key, value in wanted.items())
    if isinstance(wanted, list):
        there = live if isinstance(live, list) else []
        if name in _MERGED:
            return all(any(covers(item, one) for item in there) for one in wanted)
        return len(there) == len(wanted) and all(map(covers, there, wanted))
    return False


def _same_quantity(live: Any, wanted: Any) -> bool:
    try:
        return parse_quantity(str(live)) == parse_quantity(str(wanted))
    except SettingsError:
        return bool(live == wanted)


def _event(world: World, event: Event) -> Manifest:
    meta = world.cluster.meta
    now = rfc3339(datetime.fromtimestamp(world.now_s, UTC))
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": f"{meta.name}.{uuid.uuid4().hex[:16]}", "namespace": meta.namespace},
        "involvedObject": {
            "apiVersion": CLUSTER.api_version,
            "kind": CLUSTER.kind,
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:_MAX_EVENT_CHARS],
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "source": {"component": MANAGER},
        "reportingComponent": MANAGER,
        "reportingInstance": MANAGER,
    }
