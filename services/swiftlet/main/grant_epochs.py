"""How services tell object servers that grants count no more (`swiftlet.placement.grant_epochs`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from aiohttp import web
from swiftlet_native import ObjectWire

from swiftlet.api.context.shared_changes import SharedChanges
from swiftlet.main.background import in_background
from swiftlet.main.ring_names import object_ring
from swiftlet.main.rings import RingSet
from swiftlet.placement.grant_epochs import GrantEpochs, Teller
from swiftlet.ring.model import Device
from swiftlet.settings.policies import Policies
from swiftlet.transport.native_client import NativeClient


def teller(client: NativeClient) -> Teller:
    """Return what tells one object server, over the native transport."""

    async def tell(device: Device, account: str, container: str, before_ms: int) -> None:
        await client.ask(device, ObjectWire.revoke("", account.encode(), container.encode(), before_ms))

    return tell


def object_servers(policies: Policies, rings: RingSet) -> Sequence[Device]:
    """Return a device of each object server in any ring that is in use."""
    found: dict[tuple[str, int], Device] = {}
    for policy in policies:
        ring = rings.find(object_ring(policy.index))
        for device in ring.devices if ring is not None else ():
            if device is not None:
                found.setdefault((device.host, device.port), device)
    return list(found.values())


def tell_of_changes(
    app: web.Application, changes: SharedChanges, client: NativeClient, policies: Policies, rings: RingSet
) -> None:
    """Tell object servers of what this process changes of accounts and containers, while `app` runs."""
    epochs = GrantEpochs(teller(client), lambda: object_servers(policies, rings))

    async def telling(_app: web.Application) -> AsyncIterator[None]:
        changes.follower = epochs.note
        async with in_background(epochs.run):
            yield
        changes.follower = None

    app.cleanup_ctx.append(telling)
