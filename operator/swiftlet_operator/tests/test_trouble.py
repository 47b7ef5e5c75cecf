"""Each cause by the sentences that Kubernetes writes: what is told of it, and which field it names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swiftlet_operator.tests.troubles import (
    JUST_NOW,
    NOW_S,
    ZONE,
    claim,
    deployment,
    event,
    homeless,
    node,
    pod,
    seen,
    stateful_set,
    storage_class,
    volume,
    waiting,
)
from swiftlet_operator.trouble import Question, Seen, Trouble, diagnose, questions, told

NO_ROOM = (
    "0/3 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 2 "
    "Insufficient cpu, 2 Insufficient memory. preemption: 0/3 nodes are available: 1 Preemption is not helpful for "
    "scheduling, 2 No preemption victims found for incoming pod."
)
NO_MATCH = (
    "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. preemption: 0/3 nodes are "
    "available: 3 Preemption is not helpful for scheduling."
)
ELSEWHERE = (
    "0/3 nodes are available: 1 node(s) had volume node affinity conflict, 2 node(s) didn't match Pod's node "
    "affinity/selector. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
)
UNBOUND = (
    "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/3 nodes are available: 3 "
    "Preemption is not helpful for scheduling."
)
NO_IMAGE = (
    'failed to pull and unpack image "docker.io/library/swiftlet:9": failed to resolve reference '
    '"docker.io/library/swiftlet:9": pull access denied, repository does not exist or may require authorization: '
    "server message: insufficient_scope: authorization failed"
)
OVER_QUOTA = (
    'pods "store-disks-0" is forbidden: exceeded quota: compute, requested: requests.cpu=2, used: requests.cpu=3, '
    "limited: requests.cpu=4"
)
NO_IPC_LOCK = (
    'pods "store-disks-0" is forbidden: violates PodSecurity "restricted:latest": unrestricted capabilities (container '
    '"object" must not include "IPC_LOCK" in securityContext.capabilities.add)'
)
NO_SECRET = 'MountVolume.SetUp failed for volume "tls" : secret "objects-example-org" not found'
TIMED_OUT = (
    "Unable to attach or mount volumes: unmounted volumes=[tls], unattached volumes=[], failed to process volumes=[]: "
    "timed out waiting for the condition"
)
EVICTED = (
    "The node was low on resource: memory. Threshold quantity: 100Mi, available: 52Mi. Container object was using "
    "800Mi, request is 0, has larger consumption of memory. "
)


def only(seen: Seen) -> Trouble:
    """The one trouble that there is."""
    (found,) = diagnose(seen).troubles
    return found


def refused(message: str) -> Seen:
    """A StatefulSet that can't make its first pod."""
    text = f"create Pod store-disks-0 in StatefulSet store-disks failed error: {message}"
    return seen(stateful_set(replicas=1), event("StatefulSet", "store-disks", "FailedCreate", text))


def creating(*events: tuple[str, str], made: str = "2027-01-15T07:00:00Z") -> Seen:
    """A pod whose containers are being created, with these events, the newest last."""
    found = pod(containerStatuses=[waiting("ContainerCreating")], made=made)
    moments = (f"2027-01-15T07:{minute:02d}:00Z" for minute in range(10, 60))
    said = [event("Pod", "store-disks-0", *one, at=at) for one, at in zip(events, moments, strict=False)]
    return seen(stateful_set(replicas=1), found, *said)


def of_pod(found: dict[str, object]) -> Seen:
    return seen(stateful_set(replicas=1), found)


CAUSES = {
    "a class that is not there": (
        seen(
            stateful_set(replicas=1),
            homeless(UNBOUND),
            claim(class_name="nope"),
            event(
                "PersistentVolumeClaim",
                "d0-store-disks-0",
                "ProvisioningFailed",
                'storageclass.storage.k8s.io "nope" not found',
            ),
            classes=(storage_class("fast"), storage_class("standard", default=True)),
        ),
        "NoSuchStorageClass",
        'storageclass.storage.k8s.io "nope" not found',
        "spec.pools[name=disks].storage.className to one that exists (fast, standard)",
    ),
    "no default class": (
        seen(
            stateful_set(replicas=1),
            homeless(UNBOUND),
            claim(class_name=None),
            classes=(storage_class("fast"),),
        ),
        "NoDefaultStorageClass",
        "no persistent volumes available for this claim and no storage class is set",
        "or set spec.pools[name=disks].storage.className (fast)",
    ),
    "a driver that fails": (
        seen(
            stateful_set(replicas=1),
            claim(),
            homeless(UNBOUND),
            event(
                "PersistentVolumeClaim",
                "d0-store-disks-0",
                "ProvisioningFailed",
                'failed to provision volume with StorageClass "fast": rpc error: code = ResourceExhausted desc = full',
            ),
            classes=(storage_class("fast"),),
        ),
        "ProvisioningFailed",
        "rpc error: code = ResourceExhausted desc = full",
        "see the provisioner of spec.pools[name=disks].storage.className",
    ),
    "a driver that does not run": (
        seen(
            stateful_set(replicas=1),
            claim(),
            homeless(UNBOUND),
            event(
                "PersistentVolumeClaim",
                "d0-store-disks-0",
                "ExternalProvisioning",
                "Waiting for a volume to be created either by the external provisioner 'example.org/csi' or manually",
            ),
            classes=(storage_class("fast"),),
        ),
        "ProvisioningFailed",
        "external provisioner 'example.org/csi'",
        "see the provisioner",
    ),
    "a volume that is gone": (
        seen(stateful_set(replicas=1), homeless(UNBOUND), claim(phase="Lost")),
        "VolumeLost",
        "Bound claim has lost its PersistentVolume",
        "delete the claim and its pod",
    ),
    "no room": (
        of_pod(homeless(NO_ROOM)),
        "Unschedulable",
        "1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 2 Insufficient cpu",
        "lower spec.pools[name=disks].resources (requests of cpu, memory), or add nodes",
    ),
    "a device that no node has": (
        of_pod(homeless("0/3 nodes are available: 3 Insufficient rdma/hca.")),
        "Unschedulable",
        "3 Insufficient rdma/hca",
        "change spec.pools[name=disks].rdma",
    ),
    "a selector that no node fits": (
        of_pod(homeless(NO_MATCH, selector={"disk": "nvme"})),
        "Unschedulable",
        "didn't match Pod's node affinity/selector",
        "change spec.pools[name=disks].nodeSelector, or label nodes disk=nvme",
    ),
    "pods that refuse to share a node": (
        of_pod(homeless("0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules.")),
        "Unschedulable",
        "didn't match pod anti-affinity rules",
        "set spec.placement to preferred",
    ),
    "cordoned nodes": (
        of_pod(homeless("0/3 nodes are available: 3 node(s) were unschedulable.")),
        "Unschedulable",
        "3 node(s) were unschedulable",
        "uncordon nodes",
    ),
    "nodes of the control plane alone": (
        of_pod(
            homeless("0/1 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/master: }.")
        ),
        "Unschedulable",
        "1 node(s) had untolerated taint",
        "add nodes, or let pods stand on those of the control plane by spec.pools[name=disks].tolerations",
    ),
    "nodes for others": (
        of_pod(homeless("0/3 nodes are available: 3 node(s) had untolerated taint {dedicated: db}.")),
        "Unschedulable",
        "untolerated taint {dedicated: db}",
        "add the taint dedicated to spec.pools[name=disks].tolerations, or remove it from nodes",
    ),
    "a node without memory, from which the pod was evicted": (
        of_pod(
            homeless(
                "0/3 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/memory-pressure: }, 2 "
                "node(s) had untolerated taint {node.kubernetes.io/not-ready: }."
            )
        ),
        "Unschedulable",
        "untolerated taint {node.kubernetes.io/memory-pressure: }",
        "free memory on the nodes that say so; or bring back the nodes that are not ready",
    ),
    "a sentence that nobody knows": (
        of_pod(homeless("the moon is in the wrong house")),
        "Unschedulable",
        "the moon is in the wrong house",
        "change spec.pools[name=disks]",
    ),
    "a zone that no node has": (
        of_pod(homeless(NO_MATCH, zone="x")),
        "NoSuchZone",
        "no node is in zone x; the scheduler says: 0/3 nodes are available",
        f"spec.pools[name=disks].zones (those are a, b, c), or label nodes {ZONE}=x",
    ),
    "a node that was given another zone": (
        seen(
            stateful_set(replicas=1),
            homeless(ELSEWHERE, zone="a"),
            claim(phase="Bound"),
            *(node("n0", "b"), node("n1", "a"), node("n2", "c")),
            volumes={"pv-store-disks-0": volume("kubernetes.io/hostname", "n0")},
        ),
        "NodeRelabelled",
        "the pod must be in zone a, but node n0 with the volume of claim d0-store-disks-0 is in zone b now",
        f"label n0 {ZONE}=a again, or delete claim d0-store-disks-0 and the pod",
    ),
    "the only node of its zone was given another one": (
        seen(
            stateful_set(replicas=1),
            homeless(NO_MATCH, zone="a"),
            claim(phase="Bound"),
            *(node("n0", "b"), node("n1", "b"), node("n2", "c")),
            volumes={"pv-store-disks-0": volume("kubernetes.io/hostname", "n0")},
        ),
        "NodeRelabelled",
        "the pod must be in zone a, but node n0 with the volume of claim d0-store-disks-0 is in zone b now",
        f"label n0 {ZONE}=a again",
    ),
    "a zone that went from its node": (
        seen(
            stateful_set(replicas=1),
            homeless(ELSEWHERE),
            claim(phase="Bound"),
            *(node("n0", "d"), node("n1", "b"), node("n2", "c")),
            volumes={"pv-store-disks-0": volume()},
        ),
        "NodeRelabelled",
        f"the volume of claim d0-store-disks-0 is where nodes have {ZONE}=a, and no node has that now",
        f"label the node that had it {ZONE}=a again",
    ),
    "a node that is gone": (
        seen(
            stateful_set(replicas=1),
            homeless(ELSEWHERE),
            claim(phase="Bound"),
            volumes={"pv-store-disks-0": volume("kubernetes.io/hostname", "n9")},
        ),
        "NodeLost",
        "the node of the volume of claim d0-store-disks-0 is not there",
        "spec.replaceLostNodesAfterSeconds",
    ),
    "an image that is not there": (
        of_pod(pod(containerStatuses=[waiting("ErrImagePull", NO_IMAGE)])),
        "ImagePull",
        "pull access denied, repository does not exist or may require authorization",
        "correct spec.image, see that nodes reach its registry, and name in spec.imagePullSecrets",
    ),
    "a back-off that repeats the error": (
        of_pod(
            pod(
                containerStatuses=[
                    waiting("ImagePullBackOff", f'Back-off pulling image "swiftlet:9": ErrImagePull: {NO_IMAGE}')
                ]
            )
        ),
        "ImagePull",
        'failed to pull and unpack image "docker.io/library/swiftlet:9"',
        "spec.image",
    ),
    "a back-off of an older kubelet": (
        seen(
            stateful_set(replicas=1),
            pod(containerStatuses=[waiting("ImagePullBackOff", 'Back-off pulling image "swiftlet:9"')]),
            event("Pod", "store-disks-0", "Failed", 'Failed to pull image "swiftlet:9": rpc error: code = NotFound'),
        ),
        "ImagePull",
        'Failed to pull image "swiftlet:9": rpc error: code = NotFound',
        "spec.image",
    ),
    "an image of Redis": (
        of_pod(pod("store-redis-0", "redis", containerStatuses=[waiting("InvalidImageName", "couldn't parse image")])),
        "ImagePull",
        "couldn't parse image",
        "correct spec.redis.image",
    ),
    "an image that may not be pulled": (
        of_pod(
            pod(
                containerStatuses=[
                    waiting(
                        "ErrImageNeverPull", 'Container image "swiftlet:9" is not present with pull policy of Never'
                    )
                ]
            )
        ),
        "ImagePull",
        "is not present with pull policy of Never",
        "change spec.imagePullPolicy or spec.image",
    ),
    "a Secret that a container names": (
        of_pod(pod(containerStatuses=[waiting("CreateContainerConfigError", 'secret "their-redis" not found')])),
        "ConfigError",
        'container object: secret "their-redis" not found',
        "make the Secret their-redis in this namespace",
    ),
    "a new proxy without its image, while the old ones serve": (
        seen(
            deployment(ready=2),
            pod("store-proxy-2-a", "proxy", containerStatuses=[waiting("ErrImagePull", NO_IMAGE, "proxy")]),
        ),
        "ImagePull",
        "pull access denied",
        "correct spec.image",
    ),
    "a container that ends again and again": (
        of_pod(
            pod(
                containerStatuses=[
                    waiting(
                        "CrashLoopBackOff",
                        "back-off 5m0s restarting failed container=object pod=store-disks-0_data(x)",
                        lastState={"terminated": {"exitCode": 2, "reason": "Error", "message": "one\nd0: no space\n"}},
                    )
                ]
            )
        ),
        "CrashLoop",
        "container object ended with 2: d0: no space",
        "kubectl logs --previous -c object",
    ),
    "a service that refuses its settings": (
        of_pod(
            pod(
                containerStatuses=[
                    waiting(
                        "CrashLoopBackOff",
                        lastState={
                            "terminated": {
                                "exitCode": 1,
                                "reason": "Error",
                                "message": "begun\nswiftlet: settings of object: 2 wrong:\n  - a: wrong\n  - b: gone",
                            }
                        },
                    )
                ]
            )
        ),
        "CrashLoop",
        "container object ended with 1: swiftlet: settings of object: 2 wrong: - a: wrong - b: gone",
        "correct what it names",
    ),
    "a container with too little memory": (
        of_pod(
            pod(
                containerStatuses=[
                    waiting("CrashLoopBackOff", lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}})
                ]
            )
        ),
        "OutOfMemory",
        "container object was ended because it used more memory than its limit (OOMKilled)",
        "raise the memory limit in spec.pools[name=disks].resources",
    ),
    "a mount that fails": (
        creating(("FailedMount", NO_SECRET), ("FailedMount", TIMED_OUT)),
        "Mount",
        NO_SECRET,
        "make the Secret objects-example-org in this namespace",
    ),
    "a volume that another node has": (
        creating(
            (
                "FailedAttachVolume",
                'Multi-Attach error for volume "pvc-1" Volume is already exclusively attached to one node and can\'t '
                "be attached to another",
            )
        ),
        "Mount",
        "Multi-Attach error",
        "see the driver of spec.pools[name=disks].storage.className and the node",
    ),
    "no network": (
        creating(("FailedCreatePodSandBox", "Failed to create pod sandbox: rpc error: code = Unknown desc = no CNI")),
        "NoSandbox",
        "Failed to create pod sandbox",
        "see the network plugin",
    ),
    "an evicted pod": (
        of_pod(pod(phase="Failed", reason="Evicted", message=EVICTED)),
        "Evicted",
        "The node was low on resource: memory",
        "request in spec.pools[name=disks].resources what it needs",
    ),
    "a pod that its node rejected": (
        of_pod(pod(phase="Failed", reason="NodeAffinity", message="Pod was rejected: Predicate NodeAffinity failed")),
        "PodFailed",
        "NodeAffinity: Pod was rejected: Predicate NodeAffinity failed",
        "delete the pod",
    ),
    "a node that says nothing": (
        seen(stateful_set(replicas=1), pod(), node("n0", ready="Unknown")),
        "NodeNotReady",
        "node n0 is not ready: Kubelet stopped posting node status",
        "bring node n0 back",
    ),
    "a pod that does not become ready": (
        seen(
            stateful_set(replicas=1),
            pod(
                conditions=[{"type": "Ready", "status": "False", "lastTransitionTime": "2027-01-15T07:01:00Z"}],
                containerStatuses=[{"name": "object", "ready": False, "state": {"running": {}}}],
            ),
            event(
                "Pod", "store-disks-0", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503"
            ),
        ),
        "NotReady",
        "Readiness probe failed: HTTP probe failed with statuscode: 503",
        "see `kubectl logs` of the pod (containers object)",
    ),
    "a quota that is used up": (
        refused(OVER_QUOTA),
        "QuotaExceeded",
        OVER_QUOTA,
        "raise the namespace's ResourceQuota, or lower spec.pools[name=disks].resources or replicas",
    ),
    "a quota of volumes": (
        refused('persistentvolumeclaims "d0-store-disks-0" is forbidden: exceeded quota: disk, requested: a=10Gi'),
        "QuotaExceeded",
        "exceeded quota: disk",
        "lower spec.pools[name=disks].storage.size or replicas",
    ),
    "a quota that asks for limits": (
        refused('pods "store-disks-0" is forbidden: failed quota: compute: must specify limits.cpu for: object'),
        "QuotaExceeded",
        "must specify limits.cpu for: object",
        "say in spec.pools[name=disks].resources",
    ),
    "a limit range": (
        refused('pods "store-disks-0" is forbidden: maximum memory usage per Container is 1Gi, but limit is 4Gi'),
        "LimitRange",
        "maximum memory usage per Container is 1Gi, but limit is 4Gi",
        "change spec.pools[name=disks].resources to fit",
    ),
    "pod security": (
        refused(NO_IPC_LOCK),
        "PodSecurity",
        'violates PodSecurity "restricted:latest"',
        "label the namespace",
    ),
    "a webhook": (
        refused('admission webhook "policy.example.org" denied the request: no team label'),
        "AdmissionDenied",
        'admission webhook "policy.example.org" denied the request: no team label',
        "change spec.pools[name=disks] to what the webhook allows",
    ),
    "a Deployment over its quota": (
        seen(deployment(failure='pods "store-proxy-5d4-x" is forbidden: exceeded quota: compute, requested: cpu=2')),
        "QuotaExceeded",
        "exceeded quota: compute",
        "lower spec.proxy.resources or replicas",
    ),
}


@pytest.mark.parametrize("what", CAUSES)
def test_a_cause_is_told_with_the_sentence_of_kubernetes_and_the_field_to_change(what: str) -> None:
    look, cause, said, advice = CAUSES[what]

    found = only(look)

    assert (found.cause, advice in found.advice) == (cause, True), found
    assert said.startswith(found.sentence[:120]) or said in found.sentence
    text = told([found])
    assert found.name in text
    assert "preemption" not in text
    assert len(text) < 800


WELL = {
    "a volume in its zone, and a pod whose node has no room": (
        seen(
            stateful_set(replicas=1),
            homeless("", zone="a"),
            claim(phase="Bound"),
            volumes={"pv-store-disks-0": volume()},
        ),
        "1 of 1 pod of pool disks has no node yet",
    ),
    "an image that is being pulled": (
        creating(("FailedMount", NO_SECRET), ("Pulling", 'Pulling image "swiftlet:9"')),
        "1 of 1 pod of pool disks is pulling the image",
    ),
    "a mount that failed a moment ago": (
        creating(("FailedMount", NO_SECRET), made=JUST_NOW),
        "1 of 1 pod of pool disks is being started",
    ),
    "a claim that waits for its pod": (
        seen(
            stateful_set(replicas=1),
            homeless(UNBOUND),
            claim(),
            event("PersistentVolumeClaim", "d0-store-disks-0", "WaitForFirstConsumer", "waiting for first consumer"),
            classes=(storage_class("fast"),),
        ),
        "1 of 1 pod of pool disks waits for its volume",
    ),
    "pods that are being made": (
        seen(stateful_set(), deployment()),
        "3 of 3 pods of pool disks have not been created yet; 2 of 2 proxies have not been created yet",
    ),
    "an event of an earlier pod of that name": (
        seen(
            stateful_set(replicas=1),
            pod(containerStatuses=[waiting("ContainerCreating")]),
            event("Pod", "store-disks-0", "FailedMount", NO_SECRET, uid="another"),
        ),
        "1 of 1 pod of pool disks is being started",
    ),
    "a refusal before the pod was made": (
        seen(
            stateful_set(replicas=2),
            pod(containerStatuses=[{"name": "object", "ready": False, "state": {"running": {}}}]),
            event("StatefulSet", "store-disks", "FailedCreate", OVER_QUOTA, at="2027-01-15T07:10:00Z"),
            event("StatefulSet", "store-disks", "SuccessfulCreate", "create Pod", at="2027-01-15T07:20:00Z"),
        ),
        "1 of 2 pods of pool disks has not been created yet; 1 of 2 pods of pool disks is not ready yet",
    ),
    "a pod that ends": (
        of_pod({**pod(), "metadata": {**pod()["metadata"], "deletionTimestamp": JUST_NOW}}),
        "1 of 1 pod of pool disks is ending",
    ),
    "an evicted proxy whose place another one has taken": (
        seen(deployment(ready=2), pod("store-proxy-1-a", "proxy", phase="Failed", reason="Evicted", message=EVICTED)),
        "",
    ),
    "a claim of a pod that should not be": (
        seen(claim("store-disks-7", "nope"), classes=(storage_class("fast"),)),
        "",
    ),
}


@pytest.mark.parametrize("what", WELL)
def test_what_only_needs_time_is_no_trouble(what: str) -> None:
    look, summary = WELL[what]
    found = diagnose(look)
    assert found.troubles == ()
    assert found.summary == summary


def test_equal_troubles_are_told_together_with_three_names_and_how_many_more() -> None:
    pods = [homeless(NO_ROOM, f"store-disks-{index}") for index in range(5)]
    text = told(diagnose(seen(stateful_set(replicas=5), *pods)).troubles)
    assert text.startswith("Unschedulable (store-disks-0, store-disks-1, store-disks-2 and 2 more): 0/3 nodes are")
    assert text.count("To do: ") == 1


def test_sentences_that_name_their_pod_or_a_port_are_equal_all_the_same() -> None:
    def failing(name: str, port: int) -> dict[str, object]:
        text = f"pulling for {name}: dial tcp: read udp 10.1.2.3:{port}->10.96.0.10:53: i/o timeout"
        return pod(name, containerStatuses=[waiting("ErrImagePull", text)])

    pods = [failing(f"store-disks-{index}", 40_000 + index) for index in range(3)]
    text = told(diagnose(seen(stateful_set(), *pods)).troubles)
    assert text.startswith("ImagePull (store-disks-0, store-disks-1, store-disks-2): ")
    assert "40000" not in text


def test_many_causes_fit_into_one_message() -> None:
    pods = [homeless(f"{index} reasons " + "x" * 400, f"store-disks-{index}") for index in range(5)]
    text = told(diagnose(seen(stateful_set(replicas=5), *pods)).troubles)
    assert "And 2 more causes" in text
    assert len(text) <= 1024


def test_a_claim_in_trouble_is_told_and_its_pod_is_not_told_as_well() -> None:
    look, *_ = CAUSES["a class that is not there"]
    assert [one.kind for one in diagnose(look).troubles] == ["PersistentVolumeClaim"]


def test_nothing_is_asked_about_a_cluster_at_rest() -> None:
    ready = [pod(f"store-disks-{index}", conditions=[{"type": "Ready", "status": "True"}]) for index in range(3)]
    claims = [claim(f"store-disks-{index}", phase="Bound") for index in range(3)]
    look = seen(stateful_set(), *ready, *claims)
    assert questions(look) == []
    assert not diagnose(look).troubles
    assert not diagnose(look).on_way


def test_events_are_asked_for_where_the_status_does_not_say_why_and_of_few_objects() -> None:
    vague = [
        pod(f"store-disks-{index}", containerStatuses=[waiting("ContainerCreating")], made=JUST_NOW)
        for index in range(50)
    ]
    claims = [claim(f"store-disks-{index}") for index in range(50)]
    plain = [homeless(NO_ROOM, f"store-fast-{index}") for index in range(3)]
    asked = questions(seen(stateful_set(replicas=51), stateful_set("store-fast"), *vague, *claims, *plain))
    assert asked[:2] == [Question("StatefulSet", "store-disks"), Question("PersistentVolumeClaim", "d0-store-disks-0")]
    assert [one.name for one in asked if one.kind == "Pod"] == [f"store-disks-{index}" for index in range(3)]
    assert len(asked) == 7


def test_the_moment_of_a_pod_without_times_is_no_reason_to_call_it_late() -> None:
    bare = pod(containerStatuses=[waiting("ContainerCreating")])
    del bare["metadata"]["creationTimestamp"]
    look = seen(stateful_set(replicas=1), bare, event("Pod", "store-disks-0", "FailedMount", NO_SECRET))
    assert diagnose(look).troubles == ()
    assert diagnose(replace(look, now_s=NOW_S * 2)).troubles == ()
