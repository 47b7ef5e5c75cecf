"""Which objects' events to ask for: few objects in trouble whose own status does not say why, and none at rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from swiftlet_operator.manifests import name_of
from swiftlet_operator.trouble.claims import waiting_claims
from swiftlet_operator.trouble.kubelet import containers_of, is_prepared, is_slow, is_vague
from swiftlet_operator.trouble.seen import Part, Seen, is_ready, part_of

MOST = 9
"""The largest number of objects whose events are asked for in one look at a cluster."""
MOST_ALIKE = 3
"""How many pods of one kind in one part of the cluster are examined: the others mostly wait for the same reason."""


@dataclass(frozen=True, slots=True)
class Question:
    """An object whose events are wanted."""

    kind: str
    name: str


def questions(seen: Seen) -> list[Question]:
    """Return the objects whose events would say why pods don't run."""
    alike: Counter[tuple[str, Part]] = Counter()
    found = []
    for part, question in _unexplained(seen):
        alike[question.kind, part] += 1
        if alike[question.kind, part] <= MOST_ALIKE:
            found.append(question)
    return found[:MOST]


def _unexplained(seen: Seen) -> Iterator[tuple[Part, Question]]:
    there = {name_of(pod) for pod in seen.pods}
    for workload, pods in seen.sets():
        if any(pod not in there for pod in pods):
            yield part_of(workload), Question(workload["kind"], name_of(workload))
    for claim in waiting_claims(seen):
        yield part_of(claim), Question("PersistentVolumeClaim", name_of(claim))
    for pod in seen.pods:
        if is_ready(pod) or not pod["spec"].get("nodeName"):
            continue
        vague = any(map(is_vague, containers_of(pod)))
        if vague or not is_prepared(pod) or is_slow(pod, seen):
            yield part_of(pod), Question("Pod", name_of(pod))
