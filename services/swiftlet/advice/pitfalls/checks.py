"""The list of all checks."""

from __future__ import annotations

from swiftlet.advice.pitfalls import proxies, replicas, storage
from swiftlet.advice.pitfalls.subject import WARNING, Check, Finding, Subject

CHECKS: tuple[Check, ...] = (
    replicas.two_replicas,
    replicas.coding,
    replicas.few_zones,
    replicas.uneven_zones,
    replicas.one_pod_holds_much,
    proxies.one_proxy,
    proxies.weak_proxies,
    proxies.proxies_for_load,
    proxies.proxies_for_storage,
    proxies.balancer,
    storage.few_disks,
    storage.slow_databases,
    storage.fills_first,
    storage.sumo_places,
    storage.room,
    replicas.partitions,
)


def pitfalls(subject: Subject) -> list[Finding]:
    """Return all findings, warnings before notes, otherwise in the order of `CHECKS`."""
    found = [finding for check in CHECKS for finding in check(subject)]
    return sorted(found, key=lambda one: one.severity != WARNING)
