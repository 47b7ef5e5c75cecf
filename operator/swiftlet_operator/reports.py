"""The services' reports about themselves at `/statusz`, as frozen views: `docs/wire.md` names the fields.

A report is an untrusted input: a field that is missing, `null` or of another type is unknown (None, or empty where
there may be none), an unknown field is ignored, and what is no report at all is None. What is unknown never makes it
safe to go on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from swiftlet_operator.lag import OtherRegion, Told
from swiftlet_operator.lag import parsed as parsed_regions
from swiftlet_operator.redundancy import Repairs, parsed
from swiftlet_operator.untrusted import count_of, moment_of

SERVICES = frozenset({"object", "replicator", "container", "proxy", "metadata"})
"""Services that report; containers are named after their services."""
_MOST = 2**63 - 1
_INDEX_DIGITS = 3
"""The number of digits of a policy's index."""
_LONGEST_NAME = 64
SERVING = "serving"
"""State of a device that accepts requests."""


@dataclass(frozen=True, slots=True)
class RingReport:
    """The state of a device in one ring, as of the last round that compared it.

    Counts are of partitions (`held`, `misplaced`, `unchecked`) and of records (`behind`); None where unknown.
    `synced_at_s`: the begin of the last round that found nothing left to do, seconds since the epoch, None for never.
    `ring_version`: the ring of the last round, 0 before the first. `empty_since_s`: the end of the first of an unbroken
    series of rounds that found nothing on the device, None while there is something or it is unknown. `region`: the
    device's, where the ring has several; `regions`: what it has in common with each other one.
    """

    held: int | None = None
    misplaced: int | None = None
    behind: int | None = None
    unchecked: int | None = None
    synced_at_s: float | None = None
    ring_version: int = 0
    empty_since_s: float | None = None
    region: str = ""
    regions: Mapping[str, OtherRegion] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """A device of a pod: its capacity, whether it serves, its pending rows, and its state in rings."""

    capacity_bytes: int | None = None
    free_bytes: int | None = None
    state: str | None = None
    reason: str = ""
    pending: int | None = None
    rings: Mapping[str, RingReport] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Held:
    """The totals that one replica reports for an account."""

    containers: int
    objects: int
    bytes: int


@dataclass(frozen=True, slots=True)
class AccountsReport:
    """The accounts that hold most on a container server's devices, as counted at a time in seconds since the epoch."""

    counted_at_s: float
    held: Mapping[str, Held] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PolicyUse:
    """What a container server found of a deprecated policy: containers whose first replica it has, and accounts.

    `copies`: all databases of such containers on its devices, including deleted ones. `empty_since_s`: the end of the
    first of an unbroken series of walks that found none while the server refused new ones, None while that is not so.
    """

    containers: int
    objects: int
    accounts: int
    largest: tuple[str, ...]
    copies: int
    empty_since_s: float | None


@dataclass(frozen=True, slots=True)
class PoliciesReport:
    """The use of the deprecated policies, by index, that a container server found in its last walk, with the time when
    that began.
    """

    counted_at_s: float
    used: Mapping[int, PolicyUse] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RedisReport:
    """A replicator's connection to Redis: `up`, `away`, or None where none is set; and why it is away, when it has
    asked.
    """

    state: str | None
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class EncryptionReport:
    """`cluster.encryption` of a service, and whether all its ports take encrypted connections."""

    mode: str
    ready: bool


@dataclass(frozen=True, slots=True)
class Report:
    """The report of one service of one pod.

    `keys`: fingerprints of its cluster keys, the signing one first. `rings`: versions in use by ring. `transports`:
    peers connected by transport. `rdma_missing`: why it has no RDMA, if it says so. `users`, `quotas`: digests of the
    files in use. `devices`: by the name that the service gives them, `d0` or `POD/d0`. `workers`: the digests of the
    users files that a proxy's processes use, None in it for a process that does not say. `accounts`, `policies`: None
    where they were not counted yet. `redis`: from replicators only. `encryption`: None from a service that does not
    say. `sealed_keys`: generation of the sealed copy of the keys on each device, 0 where there is none. `repairs`: of
    objects with erasure coding, None before the first round.
    """

    service: str
    version: str = ""
    started_at_s: float | None = None
    keys: tuple[str, ...] = ()
    rings: Mapping[str, int] = field(default_factory=dict)
    transports: Mapping[str, int] = field(default_factory=dict)
    rdma_missing: str | None = None
    users: str | None = None
    quotas: str | None = None
    devices: Mapping[str, DeviceReport] = field(default_factory=dict)
    workers: frozenset[str | None] = frozenset()
    accounts: AccountsReport | None = None
    policies: PoliciesReport | None = None
    redis: RedisReport | None = None
    encryption: EncryptionReport | None = None
    sealed_keys: Mapping[str, int] = field(default_factory=dict)
    repairs: Repairs | None = None


Reports = Mapping[str, Mapping[str, Report]]
"""Reports by pod and service; services that did not answer are not among them."""


def parse_report(service: str, body: bytes) -> Report | None:
    """Return the report in a service's answer, None when it is damaged or another service's."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or fields.get("service") != service:
        return None
    return report_of(service, fields)


def report_of(service: str, fields: Mapping[str, Any]) -> Report:
    """Return the report that a service's answer has in these fields."""
    keys = fields.get("keys")
    return Report(
        service=service,
        version=_text(fields.get("version")) or "",
        started_at_s=moment_of(fields.get("startedAt")),
        keys=tuple(keys) if isinstance(keys, list) and all(isinstance(one, str) for one in keys) else (),
        rings=_counts(fields.get("rings")),
        transports=_counts(fields.get("transports")),
        rdma_missing=_text(_object(fields.get("rdma")).get("missing")),
        users=_text(fields.get("users")),
        quotas=_text(fields.get("quotas")),
        devices={name: _device(one) for name, one in _objects(fields.get("devices")).items()},
        workers=_workers(fields.get("usersOfWorkers")),
        accounts=_accounts(fields.get("accounts")),
        policies=_policies(fields.get("policies")),
        redis=_redis(fields.get("failures")),
        encryption=_encryption(_object(fields.get("encryption"))),
        sealed_keys={name: count_of(one) or 0 for name, one in _object(fields.get("sealedKeys")).items()},
        repairs=parsed(fields.get("repairs")),
    )


def _encryption(fields: Mapping[str, Any]) -> EncryptionReport | None:
    mode = _text(fields.get("mode"))
    return None if mode is None else EncryptionReport(mode, fields.get("ready") is True)


def _redis(failures: object) -> RedisReport | None:
    if not isinstance(failures, dict) or "redis" not in failures:
        return None
    state, problem = failures["redis"], _object(failures.get("redisProblem"))
    if state not in ("up", "away", None):
        return None
    return RedisReport(state, _text(problem.get("reason")) or "", _text(problem.get("message")) or "")


def _accounts(fields: object) -> AccountsReport | None:
    counted_at_s = moment_of(fields.get("countedAt")) if isinstance(fields, dict) else None
    if not isinstance(fields, dict) or counted_at_s is None:
        return None
    held = fields.get("held")
    found = {name: _held(counts) for name, counts in held.items()} if isinstance(held, dict) else {}
    return AccountsReport(counted_at_s, {name: one for name, one in found.items() if one is not None})


def _workers(versions: object) -> frozenset[str | None]:
    return frozenset(map(_text, versions)) if isinstance(versions, list) else frozenset()


def _policies(fields: object) -> PoliciesReport | None:
    counted_at_s = moment_of(fields.get("countedAt")) if isinstance(fields, dict) else None
    if not isinstance(fields, dict) or counted_at_s is None:
        return None
    found = {index: _use(one) for index, one in _objects(fields.get("used")).items() if _is_index(index)}
    return PoliciesReport(counted_at_s, {int(index): one for index, one in found.items() if one is not None})


def told_of_regions(report: Report) -> list[Told]:
    """Return what a replicator says of its devices' regions and the others."""
    rings = [(name, ring) for device in report.devices.values() for name, ring in device.rings.items()]
    return [Told(name, ring.region, ring.regions) for name, ring in rings]


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _INDEX_DIGITS


def _use(fields: Mapping[str, Any]) -> PolicyUse | None:
    counts = [count_of(fields.get(name)) for name in ("containers", "objects", "accounts", "copies")]
    if None in counts:
        return None
    containers, objects, accounts, copies = (count or 0 for count in counts)
    named = fields.get("largest")
    largest = tuple(one[:_LONGEST_NAME] for one in named if isinstance(one, str)) if isinstance(named, list) else ()
    return PolicyUse(containers, objects, accounts, largest, copies, moment_of(fields.get("emptySince")))


def _held(counts: object) -> Held | None:
    known = [count_of(one) for one in counts] if isinstance(counts, list) else []
    if len(known) != 3 or None in known:
        return None
    # Limited to the range that Kubernetes stores as a number.
    containers, objects, size = (min(one or 0, _MOST) for one in known)
    return Held(containers, objects, size)


def _device(fields: Mapping[str, Any]) -> DeviceReport:
    return DeviceReport(
        capacity_bytes=count_of(fields.get("capacityBytes")),
        free_bytes=count_of(fields.get("freeBytes")),
        state=_text(fields.get("state")),
        reason=_text(fields.get("reason")) or "",
        pending=count_of(fields.get("pending")),
        rings={name: _ring(one) for name, one in _objects(fields.get("rings")).items()},
    )


def _ring(fields: Mapping[str, Any]) -> RingReport:
    return RingReport(
        held=count_of(fields.get("held")),
        misplaced=count_of(fields.get("misplaced")),
        behind=count_of(fields.get("behind")),
        unchecked=count_of(fields.get("unchecked")),
        synced_at_s=moment_of(fields.get("syncedAt")),
        ring_version=count_of(fields.get("ringVersion")) or 0,
        empty_since_s=moment_of(fields.get("emptySince")),
        region=(_text(fields.get("region")) or "")[:_LONGEST_NAME],
        regions=parsed_regions(fields.get("regions")),
    )


def _objects(value: object) -> dict[str, Mapping[str, Any]]:
    return {name: one for name, one in value.items() if isinstance(one, dict)} if isinstance(value, dict) else {}


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _counts(value: object) -> dict[str, int]:
    found = {name: count_of(one) for name, one in value.items()} if isinstance(value, dict) else {}
    return {name: one for name, one in found.items() if one is not None}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
