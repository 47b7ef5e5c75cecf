"""Replicators hear of failed nodes through the embedded Redis, and its death costs nothing.

A notice has passed when a replicator counts it as received: what is read are the replicators' own metrics and status
reports, for a Redis that merely listens looks well to Kubernetes.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable
from typing import Any

from e2e.kubernetes.conftest import Store
from e2e.kubernetes.kube import Failed, eventually

REPLICATOR_PORT = 6400
WITHIN_S = 240
"""A Secret reaches a pod within two minutes, and the operator looks when pods change."""
_RECEIVED = re.compile(r'^swiftlet_replicator_notices_total\{direction="received",news="[a-z-]+"\} ([0-9.e+]+)$', re.M)


def told(store: Store, pod: str, path: str) -> str:
    """Return what the replicator of a pod answers to a GET of `path`."""
    with (
        store.namespace.forwarded(f"pod/{pod}", REPLICATOR_PORT) as port,
        urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer,
    ):
        return str(answer.read().decode())


def storage_pods(store: Store) -> list[str]:
    found = store.namespace.list("pods", f"app.kubernetes.io/instance={store.name},app.kubernetes.io/component=storage")
    return sorted(pod["metadata"]["name"] for pod in found)


def condition(store: Store) -> dict[str, Any]:
    conditions = store.namespace.get("storagecluster", store.name)["status"]["conditions"]
    return next(one for one in conditions if one["type"] == "FailureTableShared")


def shared(store: Store) -> None:
    """Until the operator says so, and every replicator beside an object server does: those that start are late."""
    store.namespace.wait_until_true("storagecluster", store.name, "FailureTableShared", WITHIN_S)
    eventually_everywhere(store, "Redis is up", lambda report: report["failures"]["redis"] == "up")


def eventually_everywhere(store: Store, what: str, holds: Callable[[dict[str, Any]], bool]) -> None:
    """Until the replicator of every storage pod reports what is asked."""

    def lacking() -> str | None:
        try:
            found = {pod: json.loads(told(store, pod, "/statusz")) for pod in storage_pods(store)}
        except (Failed, AssertionError, OSError) as error:
            return str(error)
        late = {pod: report for pod, report in found.items() if not holds(report)}
        return json.dumps(late) if late else None

    eventually(what, WITHIN_S, lacking)


def notices(store: Store, pod: str) -> float:
    return sum(map(float, _RECEIVED.findall(told(store, pod, "/metrics"))))


def a_notice_passes(store: Store) -> None:
    """A replicator that starts says so to all others, through Redis."""
    speaker, *others = storage_pods(store)
    before = {pod: notices(store, pod) for pod in others}
    store.namespace.kubectl("delete", "pod", speaker)

    def unheard() -> str | None:
        try:
            silent = [pod for pod in others if notices(store, pod) <= before[pod]]
        except (Failed, AssertionError, OSError) as error:
            return str(error)
        return f"{silent} heard nothing" if silent else None

    eventually("a notice", WITHIN_S, unheard)
    store.namespace.wait_until_true("storagecluster", store.name, "Ready", WITHIN_S)


def test_notices_pass_through_redis(store: Store) -> None:
    shared(store)
    a_notice_passes(store)


def test_the_death_of_redis_costs_nothing_and_another_password_is_taken(store: Store) -> None:
    pods = {one["metadata"]["name"]: one["metadata"]["uid"] for one in store.namespace.list("pods")}
    redis = f"{store.name}-redis"
    # Nothing pulls this image, so the server stays away until the field is put right.
    broken, back = ({"spec": {"redis": {"image": image}}} for image in ("swiftlet.local/none:0", None))
    store.namespace.kubectl("patch", "storagecluster", store.name, "--type=merge", f"--patch={json.dumps(broken)}")
    store.namespace.kubectl("delete", "pod", f"{redis}-0", "--wait=false")

    def not_told() -> str | None:
        found = condition(store)
        return None if found["status"] == "False" else json.dumps(found)

    eventually("the condition", WITHIN_S, not_told)
    assert "nothing else is lost" in condition(store)["message"]
    with store.client() as swift:
        swift.put_container("redis")
        for number in range(20):
            swift.put_object("redis", f"{number}", f"without {number}")
        for number in range(20):
            assert swift.get_object("redis", f"{number}")[1] == f"without {number}".encode()
    store.namespace.wait_until_true("storagecluster", store.name, "Ready", WITHIN_S)
    eventually_everywhere(store, "rounds go on without Redis", lambda report: bool(report["lastRounds"]))

    before = store.namespace.secret(redis)["password"]
    store.namespace.kubectl("delete", "secret", redis)
    store.namespace.kubectl("patch", "storagecluster", store.name, "--type=merge", f"--patch={json.dumps(back)}")
    # A StatefulSet waits for ever for a pod whose image can't be pulled.
    store.namespace.kubectl("delete", "pod", f"{redis}-0", "--ignore-not-found")
    shared(store)
    assert store.namespace.secret(redis)["password"] != before
    now = {one["metadata"]["name"]: one["metadata"]["uid"] for one in store.namespace.list("pods")}
    changed = {name for name, uid in pods.items() if now.get(name) != uid} - {f"{redis}-0"}
    assert not changed, "neither the death of Redis nor another password restarts anything else"
    a_notice_passes(store)
