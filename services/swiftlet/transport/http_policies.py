"""Which containers of a storage policy a container server has, over HTTP.

Fault model: as in `swiftlet.transport.http_listing`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swiftlet.model import DatabaseId, DatabaseName
from swiftlet.policy_moves import PolicyMove
from swiftlet.ring.model import Device
from swiftlet.transport import listing_wire as wire
from swiftlet.transport.http_claims import well_formed
from swiftlet.transport.wire import WireError, array, flag, number


@dataclass(frozen=True, slots=True)
class PolicyContainer:
    """A container of a policy, as one of its replicas describes it."""

    id: DatabaseId
    name: DatabaseName
    objects: int
    bytes: int
    move: PolicyMove | None = None
    """Its move between policies."""


@dataclass(frozen=True, slots=True)
class PolicyPage:
    """Some of a device's containers of a policy, by partition and digest.

    `upto`: the last database that was looked at, None for none. `more`: whether there are others behind it.
    """

    containers: Sequence[PolicyContainer]
    upto: DatabaseId | None
    more: bool


class HttpPolicies(ABC):
    """A question, sent with the methods of the class into which this one is mixed."""

    @abstractmethod
    async def _call(
        self, device: Device, method: str, path: str, query: Mapping[str, str | None], body: object = None
    ) -> dict[str, Any]:
        """Send a request to a device and return the JSON of its answer."""

    async def policy_containers(
        self, device: Device, policy: int, after: DatabaseId | None, moved: bool = False
    ) -> PolicyPage:
        """Return the next page of containers of a policy of which a device has databases, with `moved` also those that
        have moved out of it. Raises NodeError and DeviceFailed.
        """
        body = {"policy": policy, "after": None if after is None else wire.id_to_wire(after), "moved": moved}
        answer = await self._call(device, "POST", f"/v1/policies/{device.device}", {}, body)
        with well_formed(device):
            upto = None if answer.get("upto") is None else wire.id_from_text(answer["upto"])
            more = flag(answer, "more")
            if more and upto is None:
                raise WireError("the page has no end, but there are more")
            return PolicyPage([_container(one) for one in array(answer, "containers")], upto, more)


def _container(fields: object) -> PolicyContainer:
    if not isinstance(fields, dict):
        raise WireError("a container is not an object")
    id = wire.id_from_text(fields.get("id"))
    counts = number(fields, "objects"), number(fields, "bytes")
    return PolicyContainer(id, wire.name_from_wire(fields), *counts, wire.move_from_wire(fields))
