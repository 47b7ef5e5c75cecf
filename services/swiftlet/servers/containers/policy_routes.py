"""Lists the containers of a storage policy on a device, page by page, for administrators who retire the policy.

Fault model: see `swiftlet.servers.shared.json_requests` for hostile requests. A request reads `LOOKED_AT` databases at
most. One that can't be read is passed over: the container has other replicas, which the asker asks as well.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from swiftlet.errors import DeviceFailed, SwiftletError
from swiftlet.listing import replica
from swiftlet.listing.head import Head
from swiftlet.listing.pool import ListingStore
from swiftlet.model import DatabaseKind
from swiftlet.servers.containers.policy_tally import is_counted
from swiftlet.servers.shared.json_requests import Answer
from swiftlet.transport import listing_wire as wire
from swiftlet.web.logs import get_logger

LOOKED_AT = 500
"""The largest number of databases for one page."""

_log = get_logger("policy_routes")


class PolicyRoutes:
    """Request handlers over the stores of this process's devices."""

    def __init__(self, stores: Mapping[str, ListingStore]) -> None:
        """`stores` by the devices' names on this server."""
        self._stores = stores

    async def policy_containers(self, request: web.Request, fields: Answer) -> Answer:
        """Answer with `containers` of the policy, how far they reach (`upto`), and whether there are `more`.

        With `moved` those whose objects have moved out of the policy are among them.
        """
        device = request.match_info["device"]
        store = self._stores.get(device)
        if store is None:
            raise DeviceFailed(f"device {device} is not served here")
        policy, with_moved = wire.policy_from_wire(fields, "policy"), fields.get("moved") is True
        after = None if fields.get("after") is None else wire.id_from_text(fields["after"])
        listed, more = await replica.databases_after(store, DatabaseKind.CONTAINER, after)
        looked_at = listed[:LOOKED_AT]
        found = []
        for id in looked_at:
            try:
                head: Head = await store.read(id, lambda database: database.head)
            except SwiftletError as error:
                _log.info("a database can't be read and is skipped", database=str(id), error=str(error))
                continue
            used = head.policies_used | ({head.move.source} if with_moved and head.move is not None else frozenset())
            if policy in used and head.exists and is_counted(head):
                name, whole, move = wire.name_to_wire(head.name), head.whole, wire.move_to_wire(head.move)
                counts = {"objects": whole.objects, "bytes": whole.bytes}
                found.append({"id": wire.id_to_wire(id), **name, **counts, "move": move})
        upto = wire.id_to_wire(looked_at[-1]) if looked_at else None
        return {"containers": found, "upto": upto, "more": more or len(listed) > len(looked_at)}
