"""The spec of a Ring: which devices hold which partition of accounts, containers or one policy's objects."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from swiftlet.crd.base import MinPartHours, NamedRef, Overload, PartPower, Replicas, View


class RingSpec(View):
    """One ring of a cluster."""

    cluster_ref: NamedRef
    type: Literal["account", "container", "object"]
    policy_index: Annotated[int, Field(ge=0, le=255)] | None = None
    part_power: PartPower = 14
    replicas: Replicas = 3
    min_part_hours: MinPartHours = 1
    overload: Overload = 0.1

    @property
    def ring_name(self) -> str:
        """`account`, `container` or `object-<policy index>`: the name of its files and ConfigMaps."""
        return self.type if self.policy_index is None else f"{self.type}-{self.policy_index}"
