"""How much accounts hold, as the statuses of quotas and users tell it: the fullest ones, rounded, and seldom.

Usage changes with every write of every client, and each write of a status costs everybody who watches it. So numbers
have two digits, a quota tells of `LISTED` accounts, and a reported number stays for `usageSeconds` even if a newer one
is known.

Fault model: container servers may be silent, or report what is damaged or old. Of an account's replicas the one that
reports most counts; while none reports anything, the last number stays. Their clocks are trusted only up to our own
time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from swiftlet.crd import Resource, StorageQuotaSpec, StorageUserSpec
from swiftlet.crd.conditions import rfc3339
from swiftlet.crd.quota import DEFAULT_LEVEL, Level
from swiftlet_operator.manifests import QUOTA, USER, Kind
from swiftlet_operator.plan.sync import seconds
from swiftlet_operator.reports import AccountsReport, Held
from swiftlet_operator.world import World

LISTED = 20
"""Accounts in a quota's status."""
EVERY_S = 300
"""Seconds for which reported usage of users stays where no StorageQuota sets them."""
_MAX_NAME = 256
_PREFIX = "AUTH_"
"""The prefix of storage accounts before the name that users write."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of the cluster's accounts, by their names without prefix."""

    counted_at_s: int
    held: Mapping[str, Held]
    every_s: int


def usage_of(world: World) -> Usage | None:
    """Return the combined reports of the container servers; None while none has reported."""
    said = [one.accounts for services in world.reports.values() for one in services.values() if one.accounts]
    if not said:
        return None
    every_s = max((quota.spec.usage_seconds for quota in world.quotas), default=EVERY_S)
    counted_at_s = min(world.now_s, max(0.0, *(one.counted_at_s for one in said)))
    return Usage(int(counted_at_s), _together(said), every_s)


def _together(said: list[AccountsReport]) -> dict[str, Held]:
    found: dict[str, Held] = {}
    for one in said:
        for account, held in one.held.items():
            if account.startswith(_PREFIX) and len(account) <= _MAX_NAME:
                name = account.removeprefix(_PREFIX)
                known = found.get(name, held)
                found[name] = Held(
                    max(known.containers, held.containers),
                    max(known.objects, held.objects),
                    max(known.bytes, held.bytes),
                )
    return found


def quota_fields(world: World, quota: Resource[StorageQuotaSpec], usage: Usage | None) -> dict[str, Any]:
    """Return the part of a quota's status that is to change now: nothing, or `usage`."""
    if usage is None or not usage.held:
        return {}
    told = [_told(name, held, quota.spec) for name, held in usage.held.items()]
    told.sort(key=lambda one: (-int(one.get("percent", -1)), -int(one["bytes"]), str(one["account"])))
    return _news(world, QUOTA, quota.meta.name, usage, {"accounts": told[:LISTED]})


def user_fields(world: World, user: Resource[StorageUserSpec], usage: Usage | None) -> dict[str, Any]:
    """Return the part of a user's status that is to change now: nothing, or `usage` of the account."""
    held = usage.held.get(user.spec.account) if usage is not None else None
    if usage is None or held is None:
        return {}
    return _news(world, USER, user.meta.name, usage, _counts(held))


def _told(name: str, held: Held, spec: StorageQuotaSpec) -> dict[str, Any]:
    level = spec.level_of(name)
    percent = _percent(held, level) if level is not None else None
    told = {"account": name, "level": level.name if level is not None else DEFAULT_LEVEL, **_counts(held)}
    return told if percent is None else {**told, "percent": percent}


def _counts(held: Held) -> dict[str, int]:
    return {"containers": rounded(held.containers), "objects": rounded(held.objects), "bytes": rounded(held.bytes)}


def _percent(held: Held, level: Level) -> int | None:
    """Return the share of the account's limit that is most used up, in percent; None where accounts have no limit."""
    limits = (
        (held.containers, level.container_count),
        (held.objects, level.account_object_count),
        (held.bytes, level.account_usage_bytes),
    )
    shares = [_share(used, limit) for used, limit in limits if limit is not None]
    return max(shares, default=None)


def _share(used: int, limit: int) -> int:
    if limit == 0:
        return 100 if used else 0
    return min(used * 100 // limit, 999)


def rounded(number: int) -> int:
    """Return a number rounded to its first two digits."""
    digits = str(number)
    return int(digits[:2] + "0" * (len(digits) - 2))


def _news(world: World, kind: Kind, name: str, usage: Usage, said: Mapping[str, Any]) -> dict[str, Any]:
    status = (world.own.get((kind.kind, name)) or {}).get("status") or {}
    known = status.get("usage")
    if isinstance(known, dict):
        if {key: value for key, value in known.items() if key != "countedAt"} == said:
            return {}
        if 0 <= world.now_s - _moment(known.get("countedAt")) < usage.every_s:
            return {}
    counted_at = rfc3339(datetime.fromtimestamp(usage.counted_at_s, UTC))
    return {"usage": {"countedAt": counted_at, **said}}


def _moment(text: object) -> int:
    """Return a time in seconds, 0 for what is no time: it was damaged, and is told anew."""
    try:
        return seconds(text) if isinstance(text, str) else 0
    except ValueError:
        return 0
