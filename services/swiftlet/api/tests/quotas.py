"""Quotas for tests: a cluster whose accounts learn of their containers, and limits in force at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path as Directory

from swiftlet.api.tests.proxy import Proxy, proxy_of
from swiftlet.auth.identity import Role
from swiftlet.model import ContainerRow, DatabaseId, DatabaseName
from swiftlet.placement.tests.cluster import ACCOUNT, HASH_PATH, MemoryCluster
from swiftlet.quota import parse_quotas
from swiftlet.ring.model import Device
from swiftlet.servers.containers.account_reports import AccountReporter, ReportSettings
from swiftlet.timestamp import TimestampClock

PRECISE, CACHED = "precise: true", "{precise: false, cache_seconds: 30}"


def limit(proxy: Proxy, precise: bool = True, **limits: int) -> None:
    """Limits of every account, from now on."""
    level = ", ".join(f"{name}: {most}" for name, most in limits.items())
    text = f"precise: {str(precise).lower()}\nlevels: {{default: {{{level}}}, L1: {{object_count: 1}}}}"
    proxy.api.quotas.quotas = parse_quotas(text, "the test")


def reseller(proxy: Proxy) -> dict[str, str]:
    """A reseller admin's token."""
    return proxy.token_of("admin:root", Role.RESELLER_ADMIN)


async def report(cluster: MemoryCluster, rows: list[ContainerRow]) -> None:
    """What container servers tell the account."""
    partition = cluster.ring.partition_of(HASH_PATH(ACCOUNT))
    for device in cluster.ring.primaries(partition):
        await cluster.listing_transport.update_containers(device, partition, ACCOUNT, rows)


def _is(one: Device, other: Device) -> bool:
    return one.id == other.id


def connect_accounts(cluster: MemoryCluster) -> list[AccountReporter]:
    """Have containers report to their accounts, as container servers do."""
    reporters = {
        device.name: AccountReporter(
            {device.device: cluster.databases[device.name]},
            cluster.rings.account,
            cluster.rings.container,
            cluster.listing_transport,
            HASH_PATH,
            partial(_is, device),
            TimestampClock(),
            ReportSettings(interval_s=0.05),
        )
        for device in cluster.devices
    }

    async def report(name: str, id: DatabaseId) -> bool:
        return await reporters[name].report_now("d", id)

    async def changed(device: Device, name: DatabaseName) -> None:
        partition = cluster.ring.partition_of(HASH_PATH(name.account, name.container))
        await report(device.name, cluster.databases[device.name].id_of(partition, name))

    cluster.listing_transport.report = report
    cluster.listing_transport.after_container_change = changed
    for reporter in reporters.values():
        reporter.start()
    return list(reporters.values())


@asynccontextmanager
async def proxies(
    cluster: MemoryCluster, root: Directory, count: int, ttl_s: float = 0.0
) -> AsyncIterator[list[Proxy]]:
    """Several proxy processes of one cluster, with accounts that know their containers."""
    reporters = connect_accounts(cluster)
    made: list[Proxy] = []
    managers = []
    for number in range(count):
        home = root / str(number)
        home.mkdir()
        manager = proxy_of(cluster, home, ttl_s=ttl_s)
        made.append(await manager.__aenter__())
        managers.append(manager)
    try:
        yield made
    finally:
        for manager in reversed(managers):
            await manager.__aexit__(None, None, None)
        await asyncio.gather(*(reporter.stop() for reporter in reporters))
