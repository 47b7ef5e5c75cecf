"""What every kind of pod can be told: where to run and what to take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from swiftlet.crd.base import AnyQuantity, View

LabelKey = Annotated[str, Field(max_length=316)]
LabelValue = Annotated[str, Field(max_length=63)]
NodeSelector = Annotated[Mapping[str, LabelValue], Field(max_length=16)]
ResourceList = Annotated[Mapping[str, AnyQuantity], Field(max_length=16)]


class Resources(View):
    """Requests and limits of a container."""

    requests: ResourceList = Field(default={})
    limits: ResourceList = Field(default={})

    @property
    def manifest(self) -> dict[str, dict[str, str]]:
        """As in a container's `resources`: without what is empty."""
        both = {"requests": dict(self.requests), "limits": dict(self.limits)}
        return {name: values for name, values in both.items() if values}


class Toleration(View):
    """A taint that pods put up with, as in a pod's spec."""

    key: Annotated[str, Field(max_length=316)] | None = None
    operator: Literal["Exists", "Equal"] = "Equal"
    value: Annotated[str, Field(max_length=63)] | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: Annotated[int, Field(ge=0)] | None = None

    @property
    def manifest(self) -> dict[str, str | int]:
        """As in a pod's `tolerations`."""
        return self.model_dump(by_alias=True, exclude_none=True)


Tolerations = Annotated[tuple[Toleration, ...], Field(max_length=16)]


class PodSpec(View):
    """Where pods run and what they take."""

    resources: Resources = Resources()
    node_selector: NodeSelector = Field(default={})
    tolerations: Tolerations = ()
