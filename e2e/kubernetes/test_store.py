"""A store as the example declares it: the operator makes it and keeps it, a real client uses it."""

from __future__ import annotations

import hashlib
import random
import time
from typing import Any

from e2e.kubernetes.conftest import RELEASE, Store
from e2e.kubernetes.kube import Namespace, eventually, run

SIZES_BYTES = (0, 1, 1 << 20, (1 << 20) + 1, 20_000_000)
"""Nothing, the least, the largest that goes in one piece, the smallest that does not, and many pieces."""
BACK_WITHIN_S = 240
AT_REST_S = 20.0
"""Several times the operator's reaction to an event."""
KINDS = (
    "statefulsets,deployments,services,configmaps,secrets,poddisruptionbudgets,networkpolicies,storageclusters,rings"
)


def content(size_bytes: int) -> bytes:
    return random.Random(size_bytes).randbytes(size_bytes)


def test_objects_are_stored_and_read(store: Store) -> None:
    with store.client() as swift:
        swift.put_container("things")
        for size in SIZES_BYTES:
            etag = swift.put_object("things", f"{size} bytes", content(size))
            assert etag == hashlib.md5(content(size), usedforsecurity=False).hexdigest()
        for size in SIZES_BYTES:
            assert swift.get_object("things", f"{size} bytes")[1] == content(size)
        listing = swift.get_container("things")[1]
        assert {one["name"]: one["bytes"] for one in listing} == {f"{size} bytes": size for size in SIZES_BYTES}


def test_the_chart_s_own_test_passes(store: Store, operator: Namespace) -> None:
    entries = [f"--from-literal={name}={value}" for name, value in store.credentials.items()]
    secret = operator.kubectl("create", "secret", "generic", "e2e", *entries, "--dry-run=client", "--output", "yaml")
    operator.apply(secret)
    helm = ("helm", "--namespace", operator.name)
    run(*helm, "upgrade", RELEASE, "charts/swiftlet", "--reuse-values", "--set", "test.credentialsSecret=e2e")
    assert "stored and fetched" in run(*helm, "test", RELEASE, "--logs")


def test_nothing_is_written_at_rest(store: Store) -> None:
    def versions() -> dict[str, str]:
        found = store.namespace.list(KINDS)
        return {f"{one['kind']} {one['metadata']['name']}": one["metadata"]["resourceVersion"] for one in found}

    def changed() -> str | None:
        before = versions()
        time.sleep(AT_REST_S)
        return ", ".join(sorted(name for name, version in versions().items() if before.get(name) != version)) or None

    # The last pods become ready after the store is.
    eventually("rest", BACK_WITHIN_S, changed)


DAMAGES: tuple[tuple[str, ...], ...] = (
    ("delete", "service", "{name}-storage"),
    ("delete", "service", "{name}"),
    ("delete", "configmap", "{name}-ring-object-0-0"),
    (
        "patch",
        "configmap",
        "{name}-ring-account-0",
        "--type=json",
        '--patch=[{{"op": "remove", "path": "/binaryData"}}]',
    ),
    ("patch", "configmap", "{name}-settings", '--patch={{"data": {{"settings.yaml": "proxy: {{}}"}}}}'),
    ("delete", "secret", "{name}-users"),
    ("delete", "networkpolicy", "{name}-storage"),
    ("delete", "poddisruptionbudget", "--all"),
    ("patch", "deployment", "{name}-proxy", '--patch={{"spec": {{"replicas": 1}}}}'),
    ("patch", "statefulset", "{name}-main-zone-a", '--patch={{"spec": {{"replicas": 1}}}}'),
    ("delete", "statefulset", "{name}-container-zone-b", "--cascade=orphan"),
    ("delete", "statefulset", "{name}-main-zone-c", "--cascade=orphan"),
)
"""What a person with too many rights may do to the children of a store; its pods stay."""
COMPARED = ("spec", "data", "binaryData", "roleRef", "rules")


def test_children_that_somebody_damages_are_repaired(store: Store) -> None:
    def children() -> dict[str, Any]:
        """What the operator says of them; statuses, versions and what others fill in are theirs."""
        kinds = KINDS.replace(",storageclusters,rings", "")
        found = store.namespace.list(kinds, f"app.kubernetes.io/instance={store.name}")
        return {
            f"{one['kind']} {one['metadata']['name']}": {field: one[field] for field in COMPARED if field in one}
            for one in found
            # Hashes of secrets are salted anew.
            if one["metadata"]["name"] != f"{store.name}-users"
        }

    before = children()
    for damage in DAMAGES:
        store.namespace.kubectl(*(word.format(name=store.name) for word in damage))

    def damaged() -> str | None:
        now = children()
        for one in (*before.values(), *now.values()):
            # A new Service gets a new address.
            for field in ("clusterIP", "clusterIPs", "healthCheckNodePort", "ports"):
                one.get("spec", {}).pop(field, None)
        wrong = [name for name in before if now.get(name) != before[name]]
        return ", ".join(wrong) or None

    eventually("the repair", BACK_WITHIN_S, damaged)
    store.namespace.wait_until_true("storagecluster", store.name, "Ready", BACK_WITHIN_S)


def test_every_pod_is_deleted_once_and_nothing_is_lost(store: Store) -> None:
    with store.client() as swift:
        swift.put_container("things")
        swift.put_object("things", "kept", content(5000))
    pods = store.namespace.list("pods", f"app.kubernetes.io/instance={store.name}")
    for pod in pods:
        store.namespace.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false", "--ignore-not-found")
        store.namespace.wait_until_true("storagecluster", store.name, "StorageAvailable", BACK_WITHIN_S)

    def replaced() -> str | None:
        old = {pod["metadata"]["uid"] for pod in pods}
        now = store.namespace.list("pods", f"app.kubernetes.io/instance={store.name}")
        waiting = [pod["metadata"]["name"] for pod in now if pod["metadata"]["uid"] in old or not ready(pod)]
        return ", ".join(waiting) or None

    eventually("all pods", BACK_WITHIN_S, replaced)
    store.namespace.wait_until_true("storagecluster", store.name, "Ready", BACK_WITHIN_S)
    with store.client() as swift:
        assert swift.get_object("things", "kept")[1] == content(5000)


def ready(pod: dict[str, Any]) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))


def test_a_zone_s_pods_are_killed_and_come_back_with_their_objects(store: Store) -> None:
    def zone() -> dict[str, dict[str, Any]]:
        pods = store.namespace.list("pods", "app.kubernetes.io/component=storage,swiftlet.io/zone=zone-b")
        return {one["metadata"]["name"]: one for one in pods}

    killed = {pod["metadata"]["uid"] for pod in zone().values()}
    written: list[str] = []

    def away() -> str | None:
        """Whether one of them is; meanwhile, the store is used."""
        name = f"while the zone was away {len(written)}"
        swift.put_object("things", name, content(1000))
        written.append(name)
        for size in SIZES_BYTES:
            assert swift.get_object("things", f"{size} bytes")[1] == content(size)
        back = [pod for pod in zone().values() if ready(pod) and pod["metadata"]["uid"] not in killed]
        return None if len(back) == len(killed) else f"{len(back)} of {len(killed)} are back"

    assert len(killed) == 2
    with store.client() as swift:
        store.namespace.kubectl("delete", "pod", *zone(), "--grace-period=0", "--force")
        eventually("the zone", BACK_WITHIN_S, away)
        assert len(written) > 1
        for name in written:
            assert swift.get_object("things", name)[1] == content(1000)
    store.namespace.wait_until_true("storagecluster", store.name, "Ready", BACK_WITHIN_S)
