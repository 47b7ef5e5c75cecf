"""Claims on accounts and containers at other nodes: the part of `ListingTransport` that quotas need, over HTTP.

Fault model: as in `swiftlet.transport.http_listing` and `swiftlet.transport.bundles`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from swiftlet.errors import InvalidName, NodeError, SwiftletError
from swiftlet.model import Bounds, Claim, Confirmation, DatabaseName, Excess
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp
from swiftlet.transport import claims_wire as wire
from swiftlet.transport.bundles import Bundles
from swiftlet.transport.wire import WireError, answers_from_wire

_Place: TypeAlias = tuple[Device, int, DatabaseName, str]
"""A device, a partition, a database in it, and the path of one kind of request below its claims."""


class HttpClaims(ABC):
    """Claims over the requests of the class that this is a part of."""

    @abstractmethod
    async def _call(
        self, device: Device, method: str, path: str, query: Mapping[str, str | None], body: object = None
    ) -> dict[str, Any]:
        """Send a request to a device and return the JSON of its answer."""

    def __init__(self) -> None:
        self._queues: Bundles[_Place, dict[str, Any], dict[str, Any]] = Bundles(self._send_claims, wire.MAX_MANY)

    async def _claims(
        self, device: Device, partition: int, name: DatabaseName, below: str, body: dict[str, Any]
    ) -> dict[str, Any]:
        return await self._queues.ask((device, partition, name, below), body)

    async def _send_claims(
        self, place: _Place, bodies: Sequence[dict[str, Any]]
    ) -> Sequence[dict[str, Any] | SwiftletError]:
        """Send all of them in one message and return the answer to each."""
        device, partition, name, below = place
        kind = "accounts" if name.container is None else "containers"
        path = f"/v1/{kind}/{device.device}/{partition}/claims{below}"
        query = {"account": name.account, "container": name.container}
        answer = await self._call(device, "POST", path, query, wire.many_to_wire(bodies))
        with well_formed(device):
            return answers_from_wire(answer, len(bodies))

    async def take_claim(
        self, device: Device, partition: int, name: DatabaseName, claim: Claim, bounds: Bounds, life_s: int
    ) -> Excess | None:
        """Behaves as `ListingTransport.take_claim` requires."""
        answer = await self._claims(device, partition, name, "", wire.claim_to_wire(claim, bounds, life_s))
        with well_formed(device):
            return wire.excess_from_wire(answer)

    async def confirm_claim(
        self, device: Device, partition: int, name: DatabaseName, claim_id: str, row: str, at: Timestamp, report: bool
    ) -> Confirmation:
        """Behaves as `ListingTransport.confirm_claim` requires."""
        body = {"id": claim_id, "row": row, "timestamp": at.value, "report": report}
        answer = await self._claims(device, partition, name, "/confirm", body)
        with well_formed(device):
            return wire.confirmation_from_wire(answer)

    async def cancel_claim(self, device: Device, partition: int, name: DatabaseName, claim_id: str) -> None:
        """Behaves as `ListingTransport.cancel_claim` requires."""
        await self._claims(device, partition, name, "/cancel", {"id": claim_id})


@contextmanager
def well_formed(device: Device) -> Iterator[None]:
    """Turn an answer of the wrong form into a NodeError."""
    try:
        yield
    except (WireError, InvalidName) as error:
        raise NodeError(f"{device.address} sent an answer that can't be decoded: {error}") from error
