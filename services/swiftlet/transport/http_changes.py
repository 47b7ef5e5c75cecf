"""Which containers have changed lately on a container server, over HTTP.

Fault model: as in `swiftlet.transport.http_listing`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from swiftlet.boundaries.listings import ListingChange
from swiftlet.ring.model import Device
from swiftlet.transport import listing_wire as wire
from swiftlet.transport.http_claims import well_formed


class HttpChanges(ABC):
    """A question, sent with the methods of the class into which this one is mixed."""

    @abstractmethod
    async def _call(
        self, device: Device, method: str, path: str, query: Mapping[str, str | None], body: object = None
    ) -> dict[str, Any]:
        """Send a request to a device and return the JSON of its answer."""

    async def changes(self, device: Device, epoch: str, number: int) -> ListingChange:
        """Return what has changed on the device's server since that number in that epoch. Raises NodeError."""
        answer = await self._call(device, "POST", "/v1/changes", {}, {"epoch": epoch, "number": number})
        with well_formed(device):
            return wire.changes_from_wire(answer)
