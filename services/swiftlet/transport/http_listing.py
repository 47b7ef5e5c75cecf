"""Account and container databases on other nodes, over HTTP and JSON.

Fault model: see `swiftlet.transport.http_client`; an answer of another shape than agreed is a NodeError like any
other garbage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from swiftlet.boundaries.listings import PageForm
from swiftlet.errors import SwiftletError
from swiftlet.model import (
    AccountInfo,
    ContainerInfo,
    ContainerRow,
    DatabaseId,
    DatabaseKind,
    DatabaseName,
    DatabaseState,
    ListingQuery,
    ListingRow,
    MetadataBounds,
    ObjectRow,
    RowPage,
    Subdir,
)
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp
from swiftlet.transport import listing_wire as wire
from swiftlet.transport.bundles import Bundles
from swiftlet.transport.http_changes import HttpChanges
from swiftlet.transport.http_claims import HttpClaims
from swiftlet.transport.http_claims import well_formed as _well_formed
from swiftlet.transport.http_client import NodeClient
from swiftlet.transport.http_databases import HttpDatabases
from swiftlet.transport.http_databases import database_path as _sync
from swiftlet.transport.http_policies import HttpPolicies
from swiftlet.transport.http_shards import HttpShards
from swiftlet.transport.row_streams import RowStreams, TooLarge
from swiftlet.transport.wire import WireError, answers_from_wire, array, flag, json_bytes, json_object, text

DESCRIBED_AT_ONCE = 4
"""Questions for descriptions of containers that a device has to answer at a time; others go together after them."""


class HttpListingTransport(HttpChanges, HttpClaims, HttpDatabases, HttpPolicies, HttpShards):
    """`ListingTransport`, `ListingSyncTransport`, `ShardTransport` and `ChangeSource` over a shared pool of
    connections.
    """

    def __init__(self, client: NodeClient) -> None:
        """`client` is closed by `close`."""
        super().__init__()
        self._client = client
        self._streams = RowStreams(client)
        self._descriptions: Bundles[Device, wire.Described, dict[str, Any]] = Bundles(
            self._describe, wire.MAX_DESCRIBED, DESCRIBED_AT_ONCE
        )

    def connected(self) -> frozenset[tuple[str, int]]:
        """Return host and port of the nodes to which a connection is open."""
        return self._client.connected()

    async def _call(
        self, device: Device, method: str, path: str, query: Mapping[str, str | None], body: object = None
    ) -> dict[str, Any]:
        target = f"{path}?{wire.query_text(query)}" if query else path
        data = body if body is None or isinstance(body, bytes) else json_bytes(body)
        answer = await self._client.call(device, method, target, data)
        with _well_formed(device):
            return json_object(answer) if answer else {}

    async def _container(
        self,
        device: Device,
        method: str,
        partition: int,
        names: tuple[str, str],
        body: object = None,
        extra: Mapping[str, str | None] | None = None,
        below: str = "",
    ) -> dict[str, Any]:
        query = {"account": names[0], "container": names[1], **(extra or {})}
        return await self._call(device, method, f"/v1/containers/{device.device}/{partition}{below}", query, body)

    async def _account(
        self,
        device: Device,
        method: str,
        partition: int,
        account: str,
        body: object = None,
        extra: Mapping[str, str | None] | None = None,
        below: str = "",
    ) -> dict[str, Any]:
        query = {"account": account, **(extra or {})}
        return await self._call(device, method, f"/v1/accounts/{device.device}/{partition}{below}", query, body)

    async def put_container(
        self,
        device: Device,
        partition: int,
        account: str,
        container: str,
        timestamp: Timestamp,
        metadata: Mapping[str, str],
        policy: int | None,
        default_policy: int,
        bounds: MetadataBounds | None = None,
    ) -> bool:
        """Behaves as `ListingTransport.put_container` requires."""
        body = {
            "timestamp": timestamp.value,
            **wire.new_metadata_to_wire(metadata, bounds),
            "policy": policy,
            "default_policy": default_policy,
        }
        answer = await self._container(device, "PUT", partition, (account, container), body)
        with _well_formed(device):
            return flag(answer, "created")

    async def post_container(
        self,
        device: Device,
        partition: int,
        account: str,
        container: str,
        timestamp: Timestamp,
        metadata: Mapping[str, str],
        bounds: MetadataBounds | None = None,
    ) -> None:
        """Behaves as `ListingTransport.post_container` requires."""
        body = {"timestamp": timestamp.value, **wire.new_metadata_to_wire(metadata, bounds)}
        await self._container(device, "POST", partition, (account, container), body)

    async def delete_container(
        self, device: Device, partition: int, account: str, container: str, timestamp: Timestamp
    ) -> None:
        """Behaves as `ListingTransport.delete_container` requires."""
        stamp = {"timestamp": str(timestamp.value)}
        await self._container(device, "DELETE", partition, (account, container), extra=stamp)

    async def container_info(
        self, device: Device, partition: int, account: str, container: str, merged: bool = True
    ) -> ContainerInfo:
        """Behaves as `ListingTransport.container_info` requires."""
        fields = await self._descriptions.ask(device, (partition, account, container, merged))
        with _well_formed(device):
            return wire.container_info_from_wire(fields)

    async def _describe(
        self, device: Device, places: Sequence[wire.Described]
    ) -> Sequence[dict[str, Any] | SwiftletError]:
        """Ask for the descriptions of several containers in one message and return the answer to each."""
        path = f"/v1/descriptions/{device.device}"
        answer = await self._call(device, "POST", path, {}, wire.places_to_wire(places))
        with _well_formed(device):
            return answers_from_wire(answer, len(places))

    async def list_objects(
        self, device: Device, partition: int, account: str, container: str, query: ListingQuery
    ) -> tuple[ContainerInfo, Sequence[ObjectRow | Subdir]]:
        """Behaves as `ListingTransport.list_objects` requires."""
        fields = wire.listing_query_to_wire(query)
        answer = await self._container(device, "GET", partition, (account, container), None, fields, "/listing")
        with _well_formed(device):
            entries = [wire.object_entry_from_wire(entry) for entry in array(answer, "entries")]
            return wire.container_info_from_wire(answer), entries

    async def list_text(
        self, device: Device, partition: int, account: str, container: str, query: ListingQuery, form: PageForm
    ) -> tuple[ContainerInfo, bytes | Sequence[ObjectRow | Subdir]]:
        """Behaves as `ListingTransport.list_text` requires."""
        names = {"account": account, "container": container}
        fields = wire.query_text({**names, **wire.listing_query_to_wire(query), wire.FORM: form.value})
        target = f"/v1/containers/{device.device}/{partition}/listing?{fields}"
        answer = await self._client.call(device, "GET", target)
        with _well_formed(device):
            head, text = wire.page_from_wire(answer)
            info = wire.container_info_from_wire(head)
            if text is not None:
                return info, text
            return info, [wire.object_entry_from_wire(entry) for entry in array(head, "entries")]

    async def update_rows(
        self, device: Device, partition: int, account: str, container: str, rows: Sequence[ObjectRow]
    ) -> None:
        """Behaves as `ListingTransport.update_rows` requires."""
        for body in wire.rows_bodies(rows):
            await self._container(device, "POST", partition, (account, container), body, None, "/rows")

    async def bring_rows(
        self, device: Device, partition: int, account: str, container: str, rows: Sequence[ObjectRow], later: bool
    ) -> asyncio.Future[None] | None:
        """Behaves as `ListingTransport.bring_rows` requires."""
        try:
            return await self._streams.bring(device, partition, account, container, rows, later)
        except TooLarge:
            await self.update_rows(device, partition, account, container, rows)
            return None

    async def put_account(
        self,
        device: Device,
        partition: int,
        account: str,
        timestamp: Timestamp,
        metadata: Mapping[str, str],
        bounds: MetadataBounds | None = None,
    ) -> bool:
        """Behaves as `ListingTransport.put_account` requires."""
        body = {"timestamp": timestamp.value, **wire.new_metadata_to_wire(metadata, bounds)}
        answer = await self._account(device, "PUT", partition, account, body)
        with _well_formed(device):
            return flag(answer, "created")

    async def post_account(
        self,
        device: Device,
        partition: int,
        account: str,
        timestamp: Timestamp,
        metadata: Mapping[str, str],
        bounds: MetadataBounds | None = None,
    ) -> None:
        """Behaves as `ListingTransport.post_account` requires."""
        body = {"timestamp": timestamp.value, **wire.new_metadata_to_wire(metadata, bounds)}
        await self._account(device, "POST", partition, account, body)

    async def delete_account(self, device: Device, partition: int, account: str, timestamp: Timestamp) -> None:
        """Behaves as `ListingTransport.delete_account` requires."""
        await self._account(device, "DELETE", partition, account, extra={"timestamp": str(timestamp.value)})

    async def account_info(self, device: Device, partition: int, account: str) -> AccountInfo:
        """Behaves as `ListingTransport.account_info` requires."""
        answer = await self._account(device, "GET", partition, account)
        with _well_formed(device):
            return wire.account_info_from_wire(answer)

    async def list_containers(
        self, device: Device, partition: int, account: str, query: ListingQuery
    ) -> tuple[AccountInfo, Sequence[ContainerRow | Subdir]]:
        """Behaves as `ListingTransport.list_containers` requires."""
        fields = wire.listing_query_to_wire(query)
        answer = await self._account(device, "GET", partition, account, None, fields, "/listing")
        with _well_formed(device):
            entries = [wire.container_entry_from_wire(entry) for entry in array(answer, "entries")]
            return wire.account_info_from_wire(answer), entries

    async def update_containers(
        self, device: Device, partition: int, account: str, rows: Sequence[ContainerRow]
    ) -> None:
        """Behaves as `ListingTransport.update_containers` requires."""
        for body in wire.rows_bodies(rows):
            await self._account(device, "POST", partition, account, body, None, "/rows")

    async def databases(
        self, device: Device, kind: DatabaseKind, after: DatabaseId | None
    ) -> tuple[Sequence[DatabaseId], bool]:
        """Behaves as `ListingSyncTransport.databases` requires."""
        body = {"after": None if after is None else wire.id_to_wire(after)}
        answer = await self._call(device, "POST", f"/v1/sync/{device.device}/{kind.value}", {}, body)
        with _well_formed(device):
            found = [wire.id_from_text(entry) for entry in array(answer, "databases")]
            if flag(answer, "more") and (not found or not _goes_on(after, found[-1])):
                raise WireError("a page of databases does not continue after the previous one")
            return found, flag(answer, "more")

    async def exchange_state(self, device: Device, id: DatabaseId, state: DatabaseState) -> DatabaseState:
        """Behaves as `ListingSyncTransport.exchange_state` requires."""
        answer = await self._call(device, "POST", _sync(device, id, "state"), {}, wire.state_to_wire(state))
        with _well_formed(device):
            return wire.state_from_wire(answer)

    async def compare_rows(
        self, device: Device, id: DatabaseId, after: str, upto: str, digest: bytes
    ) -> RowPage | None:
        """Behaves as `ListingSyncTransport.compare_rows` requires."""
        body = {"after": after, "upto": upto, "digest": digest.hex()}
        answer = await self._call(device, "POST", _sync(device, id, "compare"), {}, body)
        with _well_formed(device):
            if flag(answer, "equal"):
                return None
            decode = wire.object_row_from_wire if id.kind is DatabaseKind.CONTAINER else wire.container_row_from_wire
            return RowPage([decode(row) for row in array(answer, "rows")], text(answer, "upto"))

    async def merge_rows(self, device: Device, id: DatabaseId, name: DatabaseName, rows: Sequence[ListingRow]) -> None:
        """Behaves as `ListingSyncTransport.merge_rows` requires."""
        for body in wire.rows_bodies(rows, name):
            await self._call(device, "POST", _sync(device, id, "rows"), {}, body)

    async def close(self) -> None:
        await self._descriptions.close()
        await self._streams.close()
        await self._client.close()


def _goes_on(after: DatabaseId | None, last: DatabaseId) -> bool:
    return after is None or (last.partition, last.digest) > (after.partition, after.digest)
