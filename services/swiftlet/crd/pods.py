"""Fields that all components' pods have, and how those for all pods and a component's own are merged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from swiftlet.crd.affinity import Affinity
from swiftlet.crd.base import AnyQuantity, ObjectName, View

LabelKey = Annotated[str, Field(max_length=316)]
LabelValue = Annotated[str, Field(max_length=63)]
NodeSelector = Annotated[Mapping[str, LabelValue], Field(max_length=16)]
ResourceList = Annotated[Mapping[str, AnyQuantity], Field(max_length=16)]
Labels = Annotated[
    Mapping[str, Annotated[str, Field(max_length=63, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")]],
    Field(max_length=16),
]
Annotations = Annotated[Mapping[str, Annotated[str, Field(max_length=1024)]], Field(max_length=32)]


class Resources(View):
    """Requests and limits of a container."""

    requests: ResourceList = Field(default={})
    limits: ResourceList = Field(default={})

    @property
    def manifest(self) -> dict[str, dict[str, str]]:
        """Return it in the form of a container's `resources`, without empty fields."""
        both = {"requests": dict(self.requests), "limits": dict(self.limits)}
        return {name: values for name, values in both.items() if values}


def asked(cpu: str, memory: str) -> Resources:
    """Return a default that asks for CPU and memory and limits nothing."""
    return Resources(requests={"cpu": cpu, "memory": memory})


class Toleration(View):
    """A taint that pods tolerate, as in a pod's spec."""

    key: Annotated[str, Field(max_length=316)] | None = None
    operator: Literal["Exists", "Equal"] = "Equal"
    value: Annotated[str, Field(max_length=63)] | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: Annotated[int, Field(ge=0)] | None = None

    @property
    def manifest(self) -> dict[str, str | int]:
        """Return it in the form of a pod's `tolerations`."""
        return self.model_dump(by_alias=True, exclude_none=True)


Tolerations = Annotated[tuple[Toleration, ...], Field(max_length=16)]


class Spread(View):
    """How evenly a component's pods have to be spread over failure domains; the operator selects the pods."""

    topology_key: Annotated[str, Field(min_length=1, max_length=317)]
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "ScheduleAnyway"
    max_skew: Annotated[int, Field(ge=1, le=1000)] = 1


Spreads = Annotated[tuple[Spread, ...], Field(max_length=8)]


class PodShape(View):
    """Fields that `podDefaults` and each component have."""

    node_selector: NodeSelector = Field(default={})
    tolerations: Tolerations = ()
    affinity: Affinity | None = None
    topology_spread_constraints: Spreads = ()
    priority_class_name: ObjectName | None = None
    service_account_name: ObjectName | None = None
    pod_labels: Labels = Field(default={})
    pod_annotations: Annotations = Field(default={})


class PodSpec(PodShape):
    """Settings of one component's pods, and the resources of their main container."""

    resources: Resources = Resources()


def merged(own: PodShape, usual: PodShape) -> PodShape:
    """Return the settings of a component: `own`, merged over `usual`, which is for all pods.

    Maps have the entries of both; of the same key its own counts. Tolerations are those of both. Spread constraints are
    those of both; of the same topology key its own counts. Each of the three parts of affinity counts as a whole. Of
    single names its own counts, if it has one.
    """
    return PodShape.model_construct(
        node_selector={**usual.node_selector, **own.node_selector},
        tolerations=tuple(dict.fromkeys([*usual.tolerations, *own.tolerations])),
        affinity=own.affinity.over(usual.affinity) if own.affinity is not None else usual.affinity,
        topology_spread_constraints=_by_key(usual.topology_spread_constraints, own.topology_spread_constraints),
        priority_class_name=own.priority_class_name or usual.priority_class_name,
        service_account_name=own.service_account_name or usual.service_account_name,
        pod_labels={**usual.pod_labels, **own.pod_labels},
        pod_annotations={**usual.pod_annotations, **own.pod_annotations},
    )


def _by_key(usual: tuple[Spread, ...], own: tuple[Spread, ...]) -> tuple[Spread, ...]:
    return tuple({one.topology_key: one for one in (*usual, *own)}.values())
