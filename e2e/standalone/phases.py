"""Sets the phase of a container's move between policies at all replicas of its database, as a mover would."""

from __future__ import annotations

import asyncio

from aiohttp import web

from e2e.standalone.cluster import Cluster
from swiftlet.main.nodes import use_listing_transport
from swiftlet.main.rings import RingSet
from swiftlet.policy_moves import ITEM, Phase, PolicyMove
from swiftlet.settings import ProxySettings, load_settings
from swiftlet.timestamp import TimestampClock
from swiftlet.web.app import create_base_app


def set_phase(cluster: Cluster, account: str, container: str, source: int, target: int, phase: Phase) -> None:
    """Set a phase; every replica shows it afterwards."""
    asyncio.run(_set_phase(cluster, account, container, source, target, phase))


async def _set_phase(cluster: Cluster, account: str, container: str, source: int, target: int, phase: Phase) -> None:
    settings = load_settings(ProxySettings, cluster.settings_file("proxy"))
    app = create_base_app(settings.service, trust_request_ids=False)
    ring = RingSet.of(settings, account=False, objects=False).container()
    transport = use_listing_transport(app, settings.cluster, settings.proxy)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        partition = ring.partition_of(settings.cluster.hash_path(account, container))
        devices, at = ring.primaries(partition), TimestampClock().next()
        infos = [await transport.container_info(device, partition, account, container) for device in devices]
        move = PolicyMove(source, target, phase, at, infos[0].created)
        for device in devices:
            await transport.post_container(device, partition, account, container, at, {ITEM: move.text()})
        shown = [await transport.container_info(device, partition, account, container) for device in devices]
        assert {info.move for info in shown} == {move}
    finally:
        await runner.cleanup()
