"""Everything that keeps a cluster's pods from running, and what pods do that only need more time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from swiftlet_operator.manifests import Manifest, name_of
from swiftlet_operator.trouble.claims import trouble_of_claim, waiting_claims
from swiftlet_operator.trouble.kubelet import doing, trouble_of_running
from swiftlet_operator.trouble.pod_creation import trouble_of_deployment, trouble_of_set
from swiftlet_operator.trouble.scheduling import trouble_of_place
from swiftlet_operator.trouble.seen import (
    OVER,
    Part,
    Seen,
    condition,
    is_ready,
    part_of,
    pod_of_claim,
    replicas_of,
    status_of,
)
from swiftlet_operator.trouble.words import OnItsWay, Trouble, on_the_way

_NOT_MADE = ("has not been created yet", "have not been created yet")
_NO_NODE = ("has no node yet", "have no node yet")
_NO_VOLUME = ("waits for its volume", "wait for their volumes")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong, what is starting, and how many pods each part should have."""

    troubles: tuple[Trouble, ...] = ()
    on_way: tuple[OnItsWay, ...] = ()
    wanted: tuple[tuple[Part, int], ...] = ()

    @property
    def summary(self) -> str:
        """Return what is starting, as a sentence without a full stop; empty when nothing is."""
        return on_the_way(self.on_way, dict(self.wanted))


def diagnose(seen: Seen) -> Diagnosis:
    """Look at every workload, claim and pod."""
    troubles: list[Trouble] = []
    on_way: list[OnItsWay] = []
    waiting = {pod_of_claim(claim): trouble_of_claim(claim, seen) for claim in reversed(waiting_claims(seen))}
    troubles += [found for claim in waiting_claims(seen) if (found := trouble_of_claim(claim, seen))]
    for one in (*_of_workloads(seen), *_of_pods(seen, waiting)):
        if isinstance(one, Trouble):
            troubles.append(one)
        else:
            on_way.append(one)
    wanted: Counter[Part] = Counter()
    for workload in seen.workloads:
        wanted[part_of(workload)] += replicas_of(workload)
    return Diagnosis(tuple(troubles), tuple(on_way), tuple(wanted.items()))


def _of_workloads(seen: Seen) -> Iterator[Trouble | OnItsWay]:
    there = {name_of(pod) for pod in seen.pods}
    for workload, pods in seen.sets():
        missing = [pod for pod in pods if pod not in there]
        if found := trouble_of_set(workload, missing, seen):
            yield found
        else:
            yield from (OnItsWay(part_of(workload), pod, _NOT_MADE) for pod in missing)
    for workload in seen.deployments():
        count = Counter(part_of(pod) for pod in seen.pods if status_of(pod).get("phase") not in OVER)
        if found := trouble_of_deployment(workload):
            yield found
        elif not count[part_of(workload)] and int(status_of(workload).get("readyReplicas") or 0) == 0:
            yield from (OnItsWay(part_of(workload), "", _NOT_MADE) for _ in range(replicas_of(workload)))


def _of_pods(seen: Seen, waiting: dict[str, Trouble | None]) -> Iterator[Trouble | OnItsWay]:
    """Yield what is wrong with pods or what they do; `waiting` are the pods whose claims have no volume, with the
    trouble of these.
    """
    sets = {pod for _, pods in seen.sets() for pod in pods}
    whole = {part_of(one) for one in seen.deployments() if _is_whole(one)}
    for pod in seen.pods:
        name, part = name_of(pod), part_of(pod)
        # Ended pods of Deployments stay for a while; others have taken their place.
        phase = status_of(pod).get("phase")
        past = name not in sets and (phase == "Succeeded" or (phase == "Failed" and part in whole))
        if is_ready(pod) or past:
            continue
        if waiting.get(name) is None:
            yield _of_pod(pod, seen, has_volume=name not in waiting)


def _is_whole(workload: Manifest) -> bool:
    return int(status_of(workload).get("readyReplicas") or 0) >= replicas_of(workload)


def _of_pod(pod: Manifest, seen: Seen, *, has_volume: bool) -> Trouble | OnItsWay:
    part, name = part_of(pod), name_of(pod)
    scheduled = condition(pod, "PodScheduled")
    if pod["spec"].get("nodeName") or status_of(pod).get("phase") == "Failed":
        return trouble_of_running(pod, seen) or OnItsWay(part, name, doing(pod, seen))
    if scheduled.get("status") == "False" and scheduled.get("reason") != "SchedulingGated":
        found = trouble_of_place(pod, str(scheduled.get("message") or ""), seen)
        if found is not None:
            return found
    return OnItsWay(part, name, _NO_NODE if has_volume else _NO_VOLUME)
