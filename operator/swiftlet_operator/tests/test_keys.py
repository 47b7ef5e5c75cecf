"""The rotation of the cluster key: nobody is ever refused, no key is lost, whatever dies between any two steps."""

from __future__ import annotations

import base64
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest

from swiftlet.settings.secret import key_id, parse_keys
from swiftlet_operator.build.secrets import KEY_GENERATION
from swiftlet_operator.manifests import Manifest
from swiftlet_operator.plan.actions import Patch
from swiftlet_operator.plan.keys import (
    COMPLETE_AT,
    PHASE,
    WORKERS_S,
    Holder,
    KeyPlan,
    holders,
    plan_keys,
)
from swiftlet_operator.reports import Report
from swiftlet_operator.tests.clusters import cluster
from swiftlet_operator.tests.fake_kube import _merged
from swiftlet_operator.world import World

OLD = b"the old key of enough bytes"
TOKEN_LIFE_S = 3600
SEEDS = int(os.environ.get("ROTATION_SEEDS", "10"))
"""Histories of failures that are tried; `make rotations` tries more."""
FIRST_SEED = int(os.environ.get("ROTATION_SEED", "0"))


def secret(*keys: bytes, **notes: str) -> Manifest:
    """A Secret with keys."""
    metadata: dict[str, Any] = {"name": "store-keys", "namespace": "data", "resourceVersion": "7", "annotations": notes}
    data = {"cluster-key": base64.b64encode(b"\n".join(keys)).decode(), "hash-path-suffix": "c3VmZml4"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def keys_of(live: Manifest) -> tuple[bytes, ...]:
    """What is in a Secret."""
    return keys_in(live["data"]["cluster-key"])


@cache
def keys_in(content: str) -> tuple[bytes, ...]:
    return parse_keys(base64.b64decode(content), "the Secret")


@cache
def ids(*keys: bytes) -> tuple[str, ...]:
    return tuple(map(key_id, keys))


@dataclass(slots=True)
class Pod:
    """A service with one worker or more that read the Secret each at its own time, as the kubelet brings it."""

    name: str
    workers: list[tuple[bytes, ...]]
    reports: bool = True
    file: tuple[bytes, ...] = ()
    due_s: list[int] = field(default_factory=list)

    def mount(self, keys: tuple[bytes, ...], due_s: list[int]) -> None:
        """The kubelet has brought the file; the workers look at it at these times."""
        if keys != self.file:
            self.file, self.due_s = keys, due_s

    def look(self, now_s: int) -> None:
        for number, due_s in enumerate(self.due_s):
            if due_s <= now_s:
                self.workers[number] = self.file

    def answer(self, which: int = 0) -> tuple[str, ...] | None:
        return ids(*self.workers[which]) if self.reports else None


@dataclass(slots=True)
class Play:
    """A Secret, pods that follow it, and an operator that plans and may fail."""

    live: Manifest
    pods: list[Pod]
    now_s: int = 1_000_000
    wanted: int = 2
    made: list[bytes] = field(default_factory=list)

    @classmethod
    def begin(cls, pods: int = 3, workers: int = 1) -> Play:
        return cls(secret(OLD), [Pod(f"store-{n}", [(OLD,)] * workers) for n in range(pods)])

    def fresh(self) -> str:
        self.made.append(b"the new key number %d of enough bytes" % len(self.made))
        return self.made[-1].decode()

    def plan(self, answer: Callable[[Pod], tuple[str, ...] | None] = Pod.answer) -> KeyPlan:
        running = [Holder(pod.name, "object", answer(pod)) for pod in self.pods]
        return plan_keys(self.live, self.wanted, running, self.now_s, TOKEN_LIFE_S, self.fresh)

    def write(self, patch: Patch | None) -> None:
        if patch is not None:
            self.live = _merged(self.live, patch.change)

    def step(self) -> KeyPlan:
        plan = self.plan()
        self.write(plan.patch)
        return plan

    def deliver(self) -> None:
        for pod in self.pods:
            pod.workers = [keys_of(self.live)] * len(pod.workers)

    @property
    def phase(self) -> str:
        return str(self.live["metadata"]["annotations"].get(PHASE, ""))

    def check(self) -> None:
        """Everybody accepts what anybody signs."""
        everyone = [keys for pod in self.pods for keys in pod.workers]
        assert {keys[0] for keys in everyone} <= set.intersection(*map(set, everyone))


def test_three_steps_to_a_new_key() -> None:
    play = Play.begin()
    history = []
    for _ in range(20):
        plan = play.step()
        play.deliver()
        play.check()
        history.append((play.phase, len(keys_of(play.live)), keys_of(play.live)[0] == OLD, plan.generation))
        if plan.fact.is_true:
            break
        assert plan.again_in_s is not None
        play.now_s += int(plan.again_in_s)

    assert list(dict.fromkeys(history)) == [
        ("accept", 2, True, 1),
        ("sign", 2, False, 1),
        ("forget", 1, False, 1),
        ("done", 1, False, 2),
    ]
    assert play.made == [keys_of(play.live)[0]]
    assert play.live["metadata"]["annotations"][KEY_GENERATION] == "2"
    assert play.live["data"]["hash-path-suffix"] == "c3VmZml4"
    rest = play.plan()
    assert (rest.patch, rest.again_in_s, rest.fact.reason, rest.generation) == (None, None, "Current", 2)


def test_an_old_key_is_kept_as_long_as_a_token_it_signed() -> None:
    play = Play.begin()
    while play.phase != "sign":
        play.step()
        play.deliver()
        play.now_s += WORKERS_S
    assert play.step().patch is not None  # Notes when all had it.
    began_s = play.now_s
    while play.phase == "sign":
        assert play.now_s < began_s + 2 * TOKEN_LIFE_S
        play.now_s += 60
        play.step()

    assert play.now_s - began_s >= TOKEN_LIFE_S + WORKERS_S


@pytest.mark.parametrize("phase", ["accept", "sign", "forget"])
def test_a_pod_without_a_report_stops_the_rotation_where_it_is(phase: str) -> None:
    play = Play.begin()
    while play.phase != phase:
        play.step()
        play.deliver()
        play.now_s += WORKERS_S + TOKEN_LIFE_S
    before = keys_of(play.live)
    play.pods[1].reports = False
    for _ in range(10):
        plan = play.step()
        play.now_s += 10 * TOKEN_LIFE_S
        assert (play.phase, keys_of(play.live)) == (phase, before)
        assert "store-1 (object, no report)" in plan.fact.message

    play.pods[1].reports = True
    for _ in range(10):
        play.step()
        play.deliver()
        play.now_s += WORKERS_S + TOKEN_LIFE_S
    assert (play.phase, len(keys_of(play.live))) == ("done", 1)


def test_a_silence_in_the_long_wait_does_not_begin_it_anew_but_another_answer_does() -> None:
    play = Play.begin()
    while play.phase != "sign" or not play.live["metadata"]["annotations"][COMPLETE_AT]:
        play.step()
        play.deliver()
        play.now_s += WORKERS_S
    noted = play.live["metadata"]["annotations"][COMPLETE_AT]
    play.pods[0].reports = False
    play.step()
    assert play.live["metadata"]["annotations"][COMPLETE_AT] == noted

    play.pods[0].reports = True
    play.pods[0].workers = [(OLD,)]
    play.step()
    assert play.live["metadata"]["annotations"][COMPLETE_AT] == ""


def test_a_higher_generation_on_the_way_waits_for_its_turn() -> None:
    play = Play.begin()
    play.step()
    play.wanted = 5
    generations = []
    for _ in range(40):
        generations.append(play.step().generation)
        play.deliver()
        play.now_s += WORKERS_S + TOKEN_LIFE_S

    assert list(dict.fromkeys(generations)) == [1, 2, 5]
    assert len(play.made) == 2


def test_a_lost_new_key_stops_the_rotation() -> None:
    play = Play.begin()
    play.step()
    play.live["data"] = secret(OLD)["data"]

    plan = play.plan()
    assert (plan.fact.reason, plan.patch) == ("NewKeyLost", None)


def test_a_changed_order_is_put_right_and_nothing_is_taken_out() -> None:
    play = Play.begin()
    play.step()
    play.live["data"]["cluster-key"] = base64.b64encode(play.made[0] + b"\n" + OLD).decode()
    play.step()

    assert keys_of(play.live) == (OLD, play.made[0])


@pytest.mark.parametrize("content", ["", "%%%", base64.b64encode(b"short").decode()])
def test_a_damaged_secret_is_left_alone(content: str) -> None:
    play = Play.begin()
    play.live["data"]["cluster-key"] = content

    plan = play.plan()
    assert (plan.fact.reason, plan.patch) == ("KeysUnreadable", None)


def test_a_secret_without_room_is_left_alone() -> None:
    play = Play.begin()
    play.live = secret(*(b"key number %d of many" % number for number in range(8)))

    plan = play.plan()
    assert (plan.fact.reason, plan.patch, play.made) == ("TooManyKeys", None, [])


def test_a_write_is_refused_when_the_secret_has_changed_since() -> None:
    patch = Play.begin().plan().patch

    assert patch is not None
    assert patch.change["metadata"]["resourceVersion"] == "7"


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_whatever_fails_nobody_is_refused_and_no_key_is_lost(seed: int) -> None:
    """Writes fail, the operator dies between steps, pods come, go, fall silent and read the Secret late."""
    chance = random.Random(seed)
    play = Play.begin(pods=chance.randint(1, 5), workers=3)
    # Until when somebody may come with a token of a key: the Secret must not forget it before.
    tokens: dict[bytes, int] = {}
    for _ in range(2000):
        play.now_s += chance.choice([1, 1, 1, 2, 3, 15, 60, 1200])
        for pod in play.pods:
            pod.look(play.now_s)
            for keys in pod.workers:
                tokens[keys[0]] = play.now_s + TOKEN_LIFE_S
        play.check()
        plan = play.plan(lambda pod: pod.answer(chance.choice([0, 0, 1, 2])) if chance.random() < 0.97 else None)
        if chance.random() < 0.8:
            before = keys_of(play.live)
            play.write(plan.patch)
            lost = set(before) - set(keys_of(play.live))
            assert not lost & {keys[0] for pod in play.pods for keys in pod.workers}
            assert all(tokens.get(key, 0) <= play.now_s for key in lost)
        for pod in play.pods:
            if chance.random() < 0.5:
                # All workers look within the interval of the setting and some slack.
                pod.mount(keys_of(play.live), [play.now_s + chance.choice([0, 0, 9, 20]) for _ in range(3)])
        if chance.random() < 0.01:
            play.pods.append(Pod(f"store-{chance.random()}", [keys_of(play.live)] * 3))
        if chance.random() < 0.01 and len(play.pods) > 1:
            play.pods.remove(chance.choice(play.pods))
        if chance.random() < 0.02:
            pod = chance.choice(play.pods)
            pod.reports = not pod.reports
        if chance.random() < 0.02:
            play.pods[0].reports = True
        if plan.generation == play.wanted and chance.random() < 0.1:
            play.wanted += 1
    for pod in play.pods:
        pod.reports = True
    for _ in range(20):
        play.step()
        play.deliver()
        play.now_s += WORKERS_S + TOKEN_LIFE_S
    assert play.plan().generation == play.wanted
    assert len(keys_of(play.live)) == 1


def test_only_pods_that_may_run_are_asked_for_their_keys() -> None:
    def pod(name: str, containers: list[str], node: str | None = "n0", phase: str = "Running") -> Manifest:
        spec: dict[str, Any] = {"containers": [{"name": one} for one in containers]}
        spec |= {"nodeName": node} if node is not None else {}
        return {"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}}

    world = World(
        cluster=cluster("minimal"),
        now_s=0,
        pods=(
            pod("a", ["replicator", "object"]),
            pod("b", ["object"], node=None),
            pod("c", ["object"], phase="Failed"),
            pod("d", ["redis"]),
            pod("e", ["proxy"], phase="Pending"),
        ),
        reports={"a": {"object": Report("object", keys=("x", "y")), "replicator": Report("replicator")}},
    )

    assert holders(world) == [
        Holder("a", "object", ("x", "y")),
        Holder("a", "replicator", None),
        Holder("e", "proxy", None),
    ]
    assert replace(world, pods=()).pods == ()
