"""Restarts that got stuck in several failure domains at once, and a template that is the cure.

The faults: an older template whose pods don't come up, in any number of domains, each of them partly of it; pods that
are in sync a while after they are ready only. What must hold: no pod that serves is replaced while another domain lacks
a pod, or one is not in sync there; and when pods of the newest template come up, in the end all are of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swiftlet_operator.manifests import COMPONENT_LABEL, STATEFUL_SET, ZONE_LABEL, Manifest, labels_of, name_of
from swiftlet_operator.plan.rollout import cured, paced, stamped, switched, turns
from swiftlet_operator.plan.sync import is_ready
from swiftlet_operator.plan.workloads import Domain, domains
from swiftlet_operator.tests.clusters import cluster
from swiftlet_operator.tests.fake_kube import FakeKube
from swiftlet_operator.tests.statefulsets import Played, image_of
from swiftlet_operator.tests.worlds import START, Scene
from swiftlet_operator.world import World

OLD, BAD, NEW = "swiftlet:old", "swiftlet:bad", "swiftlet:new"
SPEC = cluster("minimal")
MAX_LOOKS = 80


@dataclass(frozen=True, slots=True)
class Start:
    """A StatefulSet in the middle of something: its image, those of its pods, each up or down, and its strategy."""

    has_zone: bool
    image: str
    pods: tuple[tuple[str, bool], ...]
    partition: int | None
    """None for OnDelete."""


class Stage:
    """StatefulSets and pods that only the plan of restarts looks after, and what has happened to them."""

    def __init__(self, starts: list[Start], lag: int, new_comes_up: bool = True) -> None:
        self.kube = FakeKube()
        self.now_s = START
        self.lag_s = lag * 10
        self.played = Played(self.kube, self._comes_up, lambda: self.now_s)
        self._new_comes_up = new_comes_up
        self._up_before: dict[tuple[str, str], bool] = {}
        for number, start in enumerate(starts):
            self._have(f"s-{'abc'[number]}", start, "abc"[number])
        for pod in (pod for one in self.played.sets() for pod in self.played.pods(name_of(one)).values()):
            self._up_before[name_of(pod), image_of(pod)] = is_ready(pod)

    def _comes_up(self, pod: str, image: str) -> bool:
        if image == NEW:
            return self._new_comes_up
        return self._up_before.get((pod, image), image == OLD)

    def _have(self, name: str, start: Start, zone: str) -> None:
        made = self.kube.put(manifest(name, zone if start.has_zone else None, start.image, len(start.pods)))
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": start.partition}}
        made["spec"]["updateStrategy"] = {"type": "OnDelete"} if start.partition is None else rolling
        made["metadata"]["generation"] = 1
        made |= {"metadata": stamped(World(SPEC, self.now_s), made)["metadata"]}
        for ordinal, (image, ready) in enumerate(start.pods):
            self.played.have(made, ordinal, template(name, zone if start.has_zone else None, image), ready)
        self.now_s += 100
        older = manifest(name, zone if start.has_zone else None, OLD, 1)["spec"]["template"]
        self.played.count(made, self.played.remember(older))

    def live(self) -> tuple[World, dict[str, Domain]]:
        """What the operator sees."""
        children = {(one["kind"], name_of(one)): one for one in self.played.sets()}
        pods = [pod for one in self.played.sets() for pod in self.played.pods(name_of(one)).values()]
        world = World(SPEC, self.now_s, children=children, pods=tuple(pods))
        late = self.late()
        seen = domains(world, ())
        return world, {
            name: replace(one, behind=tuple(pod for pod in sorted(late) if pod.rpartition("-")[0] == name))
            for name, one in seen.items()
        }

    def late(self) -> set[str]:
        """Pods that are ready and not in sync yet."""
        found = set()
        for pod in (pod for one in self.played.sets() for pod in self.played.pods(name_of(one)).values()):
            moment = pod["metadata"].get("readyAt", 0)
            if is_ready(pod) and moment and moment + self.lag_s > self.now_s:
                found.add(name_of(pod))
        return found

    async def reconcile(self) -> list[str]:
        """One step of the operator; the pods that it deletes."""
        world, live = self.live()
        wanted = [
            stamped(world, manifest(name_of(one), labels_of(one).get(ZONE_LABEL), NEW, one["spec"]["replicas"]))
            for one in self.played.sets()
        ]
        turn = turns(world, wanted, live, has_data=True)
        wanted = [paced(world, one, live, turn, has_data=True) for one in wanted]
        switching = switched(world, wanted)
        gone = cured(world, wanted, live, turn, has_data=True)
        for one in wanted:
            if name_of(one) not in turn.held and name_of(one) not in switching:
                await self.kube.apply(one)
        for patch in switching.values():
            await self.kube.patch(patch.kind, "data", patch.name, patch.change)
        return [name_of(pod) for pod in gone]

    async def look(self) -> None:
        """A step of everybody; what must hold is asserted."""
        self.now_s += 10
        down, late = self.played.down(), self.late()
        gone = await self.reconcile()
        assert down.issuperset(gone), "the operator deletes only what is down"
        for name in gone:
            self.kube.find("Pod", name)["metadata"]["deletionTimestamp"] = "2027-01-15T10:00:00Z"
        before = {name_of(pod) for pod in self._pods() if is_ready(pod)}
        self._check(self.played.look(), down, late)
        for pod in self._pods():
            if is_ready(pod) and name_of(pod) not in before:
                pod["metadata"]["readyAt"] = self.now_s

    def _pods(self) -> Iterator[Manifest]:
        for one in self.played.sets():
            yield from self.played.pods(name_of(one)).values()

    def _check(self, gone: list[str], down: set[str], late: set[str]) -> None:
        """Assert that pods which served were taken in one failure domain only, while all others were in order."""
        if taken := [pod for pod in gone if pod not in down]:
            domains = {self._domain(pod) for pod in (*taken, *down, *late)}
            assert len(domains) == 1, f"{taken} went, {sorted(down)} were down and {sorted(late)} behind\n{self.told()}"

    def _domain(self, pod: str) -> str:
        name = pod.rpartition("-")[0]
        return name if labels_of(self.kube.find("StatefulSet", name)).get(ZONE_LABEL) else pod

    def is_over(self) -> bool:
        """Whether all pods are up, of the newest template, and the StatefulSets say so."""
        return all(
            is_ready(pod) and image_of(pod) == NEW and not pod["metadata"].get("deletionTimestamp")
            for pod in self._pods()
        ) and all(
            one["status"]["updatedReplicas"] == one["spec"]["replicas"]
            and one["status"]["currentRevision"] == one["status"]["updateRevision"]
            for one in self.played.sets()
        )

    def told(self) -> str:
        """What there is, for people."""
        strategies = [str(one["spec"]["updateStrategy"]) for one in self.played.sets()]
        return "\n".join(" ".join(found) for found in zip(self.told_of_pods(), strategies, strict=True))

    def told_of_pods(self) -> list[str]:
        """The templates of the pods of each StatefulSet; those that are not ready have a mark."""
        found = [self.played.pods(name_of(one)) for one in self.played.sets()]
        return [
            " ".join(
                f"{image_of(pod).partition(':')[2]}{'' if is_ready(pod) else '!'}" for _, pod in sorted(pods.items())
            )
            for pods in found
        ]


def template(name: str, zone: str | None, image: str) -> Manifest:
    """A pod's."""
    labels = {COMPONENT_LABEL: "storage", "of": name} | ({ZONE_LABEL: zone} if zone else {})
    return {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "object", "image": image}]}}


def manifest(name: str, zone: str | None, image: str, replicas: int) -> Manifest:
    """A StatefulSet with data, as it is built."""
    made = template(name, zone, image)
    return {
        "apiVersion": STATEFUL_SET.api_version,
        "kind": STATEFUL_SET.kind,
        "metadata": {"name": name, "namespace": "data", "labels": made["metadata"]["labels"]},
        "spec": {"replicas": replicas, "updateStrategy": {"type": "RollingUpdate"}, "template": made},
    }


async def played_out(stage: Stage) -> int:
    """Look until all is over; how often it took."""
    for count in range(MAX_LOOKS):
        if stage.is_over():
            return count
        await stage.look()
    raise AssertionError(f"it never ends:\n{stage.told()}")


UP, DOWN = True, False


@pytest.mark.parametrize("has_zone", [True, False])
@pytest.mark.parametrize("lag", [0, 2])
@pytest.mark.parametrize(
    "pods",
    [
        # Stuck at its first pod, at the second, and at one before which another came up.
        ((OLD, UP), (OLD, UP), (BAD, DOWN)),
        ((OLD, UP), (BAD, DOWN), (BAD, UP)),
        ((BAD, DOWN), (BAD, UP), (BAD, UP)),
        ((BAD, DOWN), (BAD, DOWN), (BAD, DOWN)),
    ],
)
async def test_two_that_are_half_changed_and_stuck_do_not_block_each_other(
    has_zone: bool, lag: int, pods: tuple[tuple[str, bool], ...]
) -> None:
    whole = Start(has_zone, OLD, ((OLD, UP),) * 3, 0)
    await played_out(Stage([Start(has_zone, BAD, pods, 0), Start(has_zone, BAD, pods, 0), whole], lag))


@pytest.mark.parametrize("has_zone", [True, False])
async def test_a_template_that_is_no_cure_is_tried_on_one_pod(has_zone: bool) -> None:
    pods = ((OLD, UP), (BAD, DOWN), (BAD, DOWN))
    stage = Stage([Start(has_zone, BAD, pods, 0), Start(has_zone, BAD, pods, 0)], 0, new_comes_up=False)
    for _ in range(12):
        await stage.look()
    assert stage.told_of_pods() == ["old bad! new!", "old bad! bad!"]


@st.composite
def starts(draw: st.DrawFn) -> Start:
    image = draw(st.sampled_from([OLD, BAD, NEW]))
    of_pods = st.sampled_from([(OLD, UP), (OLD, DOWN), (BAD, UP), (BAD, DOWN), (NEW, UP), (NEW, DOWN)])
    pods = tuple(draw(st.lists(of_pods, min_size=2, max_size=3)))
    partition = draw(st.sampled_from([0, 0, 1, 2, 3, None]))
    return Start(draw(st.booleans()), image, pods, partition)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(starts(), min_size=2, max_size=3), st.integers(0, 2))
async def test_from_whatever_state_a_good_template_gets_everywhere(begun: list[Start], lag: int) -> None:
    await played_out(Stage(begun, lag))


# --- whole reconciles ---------------------------------------------------------------------------------------------


class Lived:
    """A scene whose StatefulSets are played pod by pod."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.played = Played(scene.kube, lambda _pod, image: image != BAD, lambda: scene.now_s)
        for one in self.played.sets():
            for ordinal in self.played.pods(name_of(one)):
                self.played.have(one, ordinal, one["spec"]["template"], ready=True)
            self.played.count(one, "")

    async def look(self) -> None:
        """A reconcile, and a look of the controllers and kubelets."""
        await self.scene.step()
        self.scene.now_s += 10
        self.played.look()
        for (kind, *_), one in self.scene.kube.objects.items():
            if kind == "Deployment":
                one["status"] = {"readyReplicas": one["spec"]["replicas"]}
        self.scene.told.silent = self.played.down()

    def images(self) -> set[str]:
        """Of the pods with data."""
        pods = [pod for one in self.played.sets() for pod in self.played.pods(name_of(one)).values()]
        return {
            image_of(pod) for pod in pods if labels_of(pod)["app.kubernetes.io/component"] in ("storage", "container")
        }


@pytest.fixture
async def lived() -> Lived:
    """A cluster of three zones at rest."""
    scene = Scene("three-zones")
    scene.cluster["spec"]["image"] = OLD
    await scene.step()
    await scene.settle()
    return Lived(scene)


async def test_a_bad_image_in_a_zone_that_was_in_maintenance_is_mended_when_that_is_over(lived: Lived) -> None:
    lived.scene.cluster["spec"] |= {"maintenance": {"zone": "b"}, "image": BAD}
    for _ in range(6):
        await lived.look()
    stuck = lived.played.down()
    assert {pod.rpartition("-")[0] for pod in stuck} == {"store-fast-b", "store-container-b"}

    lived.scene.cluster["spec"] |= {"maintenance": None, "image": NEW}
    counts = []
    while lived.scene.condition("Ready")[0] != "True" or lived.images() != {NEW}:
        await lived.look()
        down = lived.played.down()
        counts.append(len(down))
        assert len(counts) < MAX_LOOKS, down
        assert len({pod.rpartition("-")[0] for pod in down - stuck}) <= 1
        stuck &= down
        assert not stuck or not down - stuck, "others were taken before those that were down were back"
    assert max(counts) <= 2
    strategies = [one["spec"]["updateStrategy"] for one in lived.played.sets() if "redis" not in name_of(one)]
    assert all(one == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}} for one in strategies)
