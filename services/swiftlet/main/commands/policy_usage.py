"""The containers of a storage policy, from the databases on all container servers, each once and in order.

Every server lists its databases by partition and digest, so the lists of all are merged with one page of each in
memory. Of a container's replicas the one that knows of most objects counts.

Fault model: servers that can't be asked are left out and named; as long as they are fewer than a container's replicas,
all containers are found.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

from aiohttp import web

from swiftlet.errors import DeviceFailed, NodeError, SettingsError
from swiftlet.main.nodes import use_listing_transport
from swiftlet.main.rings import RingSet
from swiftlet.model import DatabaseId
from swiftlet.ring.model import Device
from swiftlet.settings import ProxySettings
from swiftlet.transport.http_policies import HttpPolicies, PolicyContainer
from swiftlet.web.app import create_base_app


@dataclass(slots=True)
class Usage:
    """Some containers of a policy.

    `more` is where the following ones begin, None when these are the last ones. `unheard` has the reasons why servers
    could not be asked, by device; `replicas` is the number of replicas of a container.
    """

    containers: list[PolicyContainer] = field(default_factory=list)
    more: DatabaseId | None = None
    unheard: dict[str, str] = field(default_factory=dict)
    replicas: int = 1

    @property
    def is_whole(self) -> bool:
        """Whether each container has a replica on a server that was asked."""
        return len(self.unheard) < self.replicas


async def find(settings: ProxySettings, name: str, after: DatabaseId | None, limit: int, moved: bool = False) -> Usage:
    """Return the first `limit` containers of a policy after `after`, with `moved` also those that have moved out of it.
    Raises SettingsError without such a policy or ring.

    A container that moves between policies uses both until its move is settled.
    """
    policy = settings.load_policies().named(name)
    if policy is None:
        known = ", ".join(one.name for one in settings.load_policies())
        raise SettingsError(f"there is no policy {name}; the policies are: {known}")
    app = create_base_app(settings.service, trust_request_ids=False)
    rings = RingSet.of(settings, account=False, objects=False)
    transport = use_listing_transport(app, settings.cluster, settings.proxy)
    ring = rings.container()
    devices = [device for device in ring.devices if device is not None and device.weight > 0]
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        usage = Usage(replicas=int(ring.replica_count))
        lists = [_List(transport, device, policy.index, after, usage, moved) for device in devices]
        async for container in _merged(lists):
            if len(usage.containers) == limit:
                usage.more = usage.containers[-1].id
                break
            usage.containers.append(container)
        return usage
    finally:
        await runner.cleanup()


class _List:
    """Lists the containers of one device, with one page in memory at a time."""

    def __init__(
        self,
        transport: HttpPolicies,
        device: Device,
        policy: int,
        after: DatabaseId | None,
        usage: Usage,
        moved: bool = False,
    ) -> None:
        self._transport, self._device, self._policy, self._usage = transport, device, policy, usage
        self._after, self._with_moved = after, moved
        self._page: list[PolicyContainer] = []
        self._more = True

    async def first(self) -> PolicyContainer | None:
        """Return the next container, None when there is none."""
        while not self._page and self._more:
            try:
                page = await self._transport.policy_containers(
                    self._device, self._policy, self._after, self._with_moved
                )
            except (NodeError, DeviceFailed) as error:
                self._usage.unheard[self._device.name] = str(error)
                self._more = False
                return None
            self._page, self._after, self._more = list(page.containers), page.upto, page.more
        return self._page[0] if self._page else None

    def pop(self) -> None:
        """Go on to the next container."""
        del self._page[0]


async def _merged(lists: Iterable[_List]) -> AsyncIterator[PolicyContainer]:
    """Yield each container once, by partition and digest."""
    while True:
        heads = [(head, one) for one in lists if (head := await one.first()) is not None]
        if not heads:
            return
        lowest = min(_place(head) for head, _ in heads)
        same = [(head, one) for head, one in heads if _place(head) == lowest]
        for _, one in same:
            one.pop()
        yield max((head for head, _ in same), key=lambda head: head.objects)


def _place(container: PolicyContainer) -> tuple[int, bytes]:
    return container.id.partition, container.id.digest
