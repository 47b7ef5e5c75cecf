"""Writes statuses: conditions merged with the live ones, written when they differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from swiftlet.crd import merge_conditions, parse_conditions
from swiftlet.errors import SettingsError
from swiftlet_operator.kube import Kube
from swiftlet_operator.manifests import Manifest
from swiftlet_operator.plan import StatusOf


async def write_statuses(
    kube: Kube,
    namespace: str,
    statuses: Sequence[StatusOf],
    now_s: int,
    may_write: Callable[[], None],
    seen: Mapping[tuple[str, str], Manifest] | None = None,
) -> int:
    """Bring statuses up to date; return how many were written. Raises KubeError.

    `seen` are objects as they were read a moment ago, by kind and name: those whose status is right are not read again.
    """
    count = 0
    for status in statuses:
        before = (seen or {}).get((status.kind.kind, status.name))
        if before is not None and status_of(before, status, now_s) == (before.get("status") or {}):
            continue
        live = await kube.get(status.kind, namespace, status.name)
        if live is None:
            continue
        wanted = status_of(live, status, now_s)
        if wanted == (live.get("status") or {}):
            continue
        may_write()
        change = {"status": merge_patch(live.get("status") or {}, wanted)}
        await kube.patch(status.kind, namespace, status.name, change, subresource="status")
        count += 1
    return count


def merge_patch(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return a patch that merged into the live data makes the wanted ones of it: removed entries of maps
    become null.
    """
    change: dict[str, Any] = dict.fromkeys(live.keys() - wanted.keys())
    for key, value in wanted.items():
        nested = isinstance(value, dict) and isinstance(live.get(key), dict)
        change[key] = merge_patch(live[key], value) if nested else value
    return change


def status_of(live: Manifest, status: StatusOf, now_s: int) -> dict[str, Any]:
    """Return the whole status as it should be; fields that are not mentioned stay."""
    try:
        current = parse_conditions(live)
    except SettingsError:
        # Conditions that are malformed are written anew.
        current = ()
    moment = datetime.fromtimestamp(now_s, UTC)
    conditions = merge_conditions(current, status.facts, status.generation, moment)
    fields = {**(live.get("status") or {}), **status.fields}
    return {**fields, "conditions": [one.manifest for one in conditions]}
