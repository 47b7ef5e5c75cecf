"""Affinity with all fields of a pod's spec, so that the API server refuses a mistake before any pod is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from swiftlet.crd.base import View

MAX_TERMS = 16
"""The largest number of terms in a list, and of expressions in a term."""
Key = Annotated[str, Field(max_length=317)]
Value = Annotated[str, Field(max_length=63)]
Weight = Annotated[int, Field(ge=1, le=100)]


class NodeRequirement(View):
    """A requirement on a label or a field of nodes."""

    key: Key
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: Annotated[tuple[Annotated[str, Field(max_length=253)], ...], Field(max_length=64)] | None = None


NodeRequirements = Annotated[tuple[NodeRequirement, ...], Field(max_length=MAX_TERMS)]


class NodeTerm(View):
    """Requirements of which a node has to meet all."""

    match_expressions: NodeRequirements | None = None
    match_fields: NodeRequirements | None = None


class NodeTerms(View):
    """Terms of which a node has to meet one."""

    node_selector_terms: Annotated[tuple[NodeTerm, ...], Field(min_length=1, max_length=MAX_TERMS)]


class PreferredNodes(View):
    """A term, and its weight."""

    weight: Weight
    preference: NodeTerm


class NodeAffinity(View):
    """The nodes that pods may run on, and those that they should preferably run on."""

    required_during_scheduling_ignored_during_execution: NodeTerms | None = None
    preferred_during_scheduling_ignored_during_execution: (
        Annotated[tuple[PreferredNodes, ...], Field(max_length=MAX_TERMS)] | None
    ) = None


class LabelRequirement(View):
    """A requirement on a label of pods or namespaces."""

    key: Key
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: Annotated[tuple[Value, ...], Field(max_length=64)] | None = None


class LabelSelector(View):
    """Selects pods or namespaces; an empty selector selects all."""

    match_labels: Annotated[Mapping[str, Value], Field(max_length=MAX_TERMS)] | None = None
    match_expressions: Annotated[tuple[LabelRequirement, ...], Field(max_length=MAX_TERMS)] | None = None


class PodTerm(View):
    """Selects pods beside which, or away from which, a pod should run."""

    topology_key: Key
    label_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    namespaces: Annotated[tuple[Value, ...], Field(max_length=MAX_TERMS)] | None = None


class PreferredPods(View):
    """A term, and its weight."""

    weight: Weight
    pod_affinity_term: PodTerm


class PodAffinity(View):
    """The pods that a pod has to run beside or away from, and those that it should preferably run beside or
    away from.
    """

    required_during_scheduling_ignored_during_execution: (
        Annotated[tuple[PodTerm, ...], Field(max_length=MAX_TERMS)] | None
    ) = None
    preferred_during_scheduling_ignored_during_execution: (
        Annotated[tuple[PreferredPods, ...], Field(max_length=MAX_TERMS)] | None
    ) = None


class Affinity(View):
    """Rules about the nodes that pods run on, and about the pods that they run beside."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None

    @property
    def manifest(self) -> dict[str, Any]:
        """Return the rules in the form of a pod's `affinity`."""
        # In JSON mode tuples become lists.
        found: dict[str, Any] = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return found

    def over(self, other: Affinity | None) -> Affinity:
        """Return these rules, with the parts of `other` that these do not have; there are three parts."""
        if other is None:
            return self
        said = {name: part for name in type(self).model_fields if (part := getattr(self, name)) is not None}
        return other.model_copy(update=said)
