"""Accounts and containers of the whole cluster: quorum writes, and reads that take the first good copy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from swiftlet.boundaries.listings import ListingTransport, PageForm
from swiftlet.errors import NotFound
from swiftlet.model import AccountInfo, ContainerInfo, ContainerRow, ListingQuery, MetadataBounds, ObjectRow, Subdir
from swiftlet.names import HashPath
from swiftlet.placement.claims import ClusterClaims
from swiftlet.placement.fanout import read_each, write_all
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.outcomes import refusal
from swiftlet.placement.plan import ANYWHERE, Place, plan_read
from swiftlet.placement.rings import Rings
from swiftlet.placement.rows.lagging import Lagging
from swiftlet.placement.write_plan import plan_write
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.timestamp import ZERO, Timestamp

T = TypeVar("T")


def _mostly(created: Sequence[bool]) -> bool:
    """Whether most replicas created the database; a handoff always does, as does one that missed the creation."""
    return 2 * sum(created) > len(created)


def _info_put_at(info: ContainerInfo | AccountInfo) -> Timestamp:
    return info.put_timestamp


def _page_put_at(page: tuple[ContainerInfo | AccountInfo, object]) -> Timestamp:
    return page[0].put_timestamp


class ClusterListings:
    """The account and container databases, wherever they are."""

    def __init__(
        self,
        rings: Rings,
        transport: ListingTransport,
        hash_path: HashPath,
        health: NodeHealth,
        post_quorum_wait_s: float = 0.5,
        lagging: Lagging | None = None,
        place: Place = ANYWHERE,
    ) -> None:
        """`post_quorum_wait_s` is how long a write waits for its slowest replicas after its quorum.

        `lagging` records the replicas that did not take rows in time. Replicas near `place` are read first.
        """
        self._rings = rings
        self._transport = transport
        self._hash_path = hash_path
        self._health = health
        self._post_quorum_wait_s = post_quorum_wait_s
        self._lagging = lagging or Lagging()
        self._place = place
        self.claims = ClusterClaims(rings, transport, hash_path, health)
        """The claims of writes that have not ended, for limits that hold exactly."""

    async def _write(
        self, ring: Ring, partition: int, what: str, operation: Callable[[Device], Awaitable[T]]
    ) -> list[T]:
        plan = plan_write(ring, partition, self._health.suppressed)
        outcome = await write_all(plan, lambda _, device: operation(device), self._health, self._post_quorum_wait_s)
        if plan.quorum.met(outcome.done):
            answered = {device.id for _, device, _ in outcome.replies}
            self._lagging.missed(what, (device for device in ring.primaries(partition) if device.id not in answered))
            return [reply for _, _, reply in outcome.replies]
        raise refusal(outcome, plan.quorum, what)

    async def _read(
        self,
        ring: Ring,
        partition: int,
        what: str,
        operation: Callable[[Device], Awaitable[T]],
        put_at: Callable[[T], Timestamp],
    ) -> T:
        plan = plan_read(ring, partition, self._health.suppressed, behind=self._lagging.behind(what), place=self._place)
        deletions = [ZERO]

        async def bounded(device: Device) -> T:
            """Ignore the answer of a handoff that missed a deletion of which a primary knows."""
            try:
                reply = await operation(device)
            except NotFound as absence:
                deletions.append(absence.timestamp or ZERO)
                raise
            if device.id in plan.handoffs and put_at(reply) < max(deletions):
                raise NotFound(f"{what} was deleted", max(deletions))
            return reply

        outcome = await read_each(plan, bounded, self._health, lambda o: bool(o.replies))
        if outcome.replies:
            return outcome.replies[0][2]
        if len(outcome.refused_by(NotFound)) >= plan.quorum.count:
            raise outcome.refused_by(NotFound)[0]
        others = [error for _, error in outcome.refusals if not isinstance(error, NotFound)]
        raise others[0] if others else outcome.unavailable(what, plan.quorum)

    def _container(self, account: str, container: str) -> tuple[Ring, int, str]:
        ring = self._rings.container()
        return ring, ring.partition_of(self._hash_path(account, container)), f"/{account}/{container}"

    def _account(self, account: str) -> tuple[Ring, int, str]:
        ring = self._rings.account()
        return ring, ring.partition_of(self._hash_path(account)), f"/{account}"

    async def put_container(
        self,
        account: str,
        container: str,
        timestamp: Timestamp,
        metadata: Mapping[str, str],
        policy: int | None,
        default_policy: int,
        bounds: MetadataBounds | None = None,
    ) -> bool:
        """Create or update a container; return whether most replicas created it. Raises PolicyConflict and
        Unavailable.
        """
        ring, partition, what = self._container(account, container)
        created = await self._write(
            ring,
            partition,
            what,
            lambda device: self._transport.put_container(
                device, partition, account, container, timestamp, metadata, policy, default_policy, bounds
            ),
        )
        return _mostly(created)

    async def post_container(
        self,
        account: str,
        container: str,
        timestamp: Timestamp,
        metadata: Mapping[str, str],
        bounds: MetadataBounds | None = None,
    ) -> None:
        """Merge metadata. Raises NotFound, TooMuchMetadata and Unavailable."""
        ring, partition, what = self._container(account, container)
        await self._write(
            ring,
            partition,
            what,
            lambda device: self._transport.post_container(
                device, partition, account, container, timestamp, metadata, bounds
            ),
        )

    async def delete_container(self, account: str, container: str, timestamp: Timestamp) -> None:
        """Delete the container. Raises NotEmpty, NotFound and Unavailable."""
        ring, partition, what = self._container(account, container)
        await self._write(
            ring,
            partition,
            what,
            lambda device: self._transport.delete_container(device, partition, account, container, timestamp),
        )

    async def container_info(self, account: str, container: str) -> ContainerInfo:
        """Return the totals and metadata of the container. Raises NotFound and Unavailable."""
        return await self._info(account, container, merged=True)

    async def container_facts(self, account: str, container: str) -> ContainerInfo:
        """Return the container as `container_info` does, with totals that may lack rows of the last half a minute."""
        return await self._info(account, container, merged=False)

    async def _info(self, account: str, container: str, merged: bool) -> ContainerInfo:
        ring, partition, what = self._container(account, container)
        return await self._read(
            ring,
            partition,
            what,
            lambda device: self._transport.container_info(device, partition, account, container, merged),
            _info_put_at,
        )

    async def list_objects(
        self, account: str, container: str, query: ListingQuery
    ) -> tuple[ContainerInfo, Sequence[ObjectRow | Subdir]]:
        """Return one page of a container's listing. Raises NotFound and Unavailable."""
        ring, partition, what = self._container(account, container)
        return await self._read(
            ring,
            partition,
            what,
            lambda device: self._transport.list_objects(device, partition, account, container, query),
            _page_put_at,
        )

    async def list_text(
        self, account: str, container: str, query: ListingQuery, form: PageForm
    ) -> tuple[ContainerInfo, bytes | Sequence[ObjectRow | Subdir]]:
        """Return a page as `list_objects` does, as text in UTF-8 unless its rows are needed to make it."""
        ring, partition, what = self._container(account, container)
        return await self._read(
            ring,
            partition,
            what,
            lambda device: self._transport.list_text(device, partition, account, container, query, form),
            _page_put_at,
        )

    async def update_rows(self, account: str, container: str, rows: Sequence[ObjectRow]) -> None:
        """Merge rows that belong to no object, of which the newest wins. Raises NotFound and Unavailable."""
        ring, partition, what = self._container(account, container)
        await self._write(
            ring,
            partition,
            what,
            lambda device: self._transport.update_rows(device, partition, account, container, rows),
        )

    async def put_account(
        self, account: str, timestamp: Timestamp, metadata: Mapping[str, str], bounds: MetadataBounds | None = None
    ) -> bool:
        """Create or update an account; return whether most replicas created it. Raises TooMuchMetadata."""
        ring, partition, what = self._account(account)
        created = await self._write(
            ring,
            partition,
            what,
            lambda device: self._transport.put_account(device, partition, account, timestamp, metadata, bounds),
        )
        return _mostly(created)

    async def post_account(
        self, account: str, timestamp: Timestamp, metadata: Mapping[str, str], bounds: MetadataBounds | None = None
    ) -> None:
        """Merge metadata. Raises NotFound, TooMuchMetadata and Unavailable."""
        ring, partition, what = self._account(account)
        await self._write(
            ring,
            partition,
            what,
            lambda device: self._transport.post_account(device, partition, account, timestamp, metadata, bounds),
        )

    async def delete_account(self, account: str, timestamp: Timestamp) -> None:
        """Delete the account. Raises NotEmpty, NotFound and Unavailable."""
        ring, partition, what = self._account(account)
        await self._write(
            ring,
            partition,
            what,
            lambda device: self._transport.delete_account(device, partition, account, timestamp),
        )

    async def account_info(self, account: str) -> AccountInfo:
        """Return the totals and metadata of the account. Raises NotFound and Unavailable."""
        ring, partition, what = self._account(account)
        return await self._read(
            ring, partition, what, lambda device: self._transport.account_info(device, partition, account), _info_put_at
        )

    async def list_containers(
        self, account: str, query: ListingQuery
    ) -> tuple[AccountInfo, Sequence[ContainerRow | Subdir]]:
        """Return one page of an account's listing. Raises NotFound and Unavailable."""
        ring, partition, what = self._account(account)
        return await self._read(
            ring,
            partition,
            what,
            lambda device: self._transport.list_containers(device, partition, account, query),
            _page_put_at,
        )
