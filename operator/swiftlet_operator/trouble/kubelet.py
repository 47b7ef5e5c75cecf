"""Pods on a node: what the kubelet says of their containers, images and volumes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from swiftlet_operator.manifests import Manifest, name_of
from swiftlet_operator.trouble.seen import Part, Seen, age_s, condition, event_s, moment_s, part_of, status_of
from swiftlet_operator.trouble.words import Trouble, sentence

PATIENCE_S = 60
"""Seconds for which mounts may fail in a new pod: they mostly work with the next try."""
SLOW_S = 600
"""Seconds that the startup probe of a service allows; a service that is not ready by then won't become so by itself."""
IMAGE = frozenset(
    {
        *("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"),
        *("RegistryUnavailable", "SignatureValidationFailed"),
    }
)
_CONFIG = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError"})
WAITS = frozenset({"ContainerCreating", "PodInitializing"})
"""States of a container in which the status says only that it is being prepared; the pod's events say what
hinders it.
"""
_MOUNT = frozenset({"FailedMount", "FailedAttachVolume", "FailedMapVolume"})
_SANDBOX = frozenset({"FailedCreatePodSandBox", "NetworkNotReady"})
_GETS_ON = frozenset({"Pulling", "Pulled", "Created", "Started", "SuccessfulAttachVolume"})
_VAGUE = "Unable to attach or mount volumes"
"""The begin of a sentence that only sums up the others."""
_BACK_OFF = re.compile(r'Back-off pulling image "[^"]*"(?:: ErrImagePull: )?')
_OOM = "OOMKilled"
_SAYS = "swiftlet: "
"""The begin of what a service prints when it can't run; its log has other prefixes."""


def trouble_of_running(pod: Manifest, seen: Seen) -> Trouble | None:
    """Return what keeps a pod that has a node from running; None when nothing is known to."""
    status = status_of(pod)
    if status.get("phase") == "Failed":
        return _of_end(pod)
    found = _of_node(pod, seen)
    if found is not None or pod["metadata"].get("deletionTimestamp"):
        return found
    for container in containers_of(pod):
        if found := _of_container(pod, container, seen):
            return found
    return _of_preparation(pod, seen) or _of_slowness(pod, seen)


def containers_of(pod: Manifest) -> list[dict[str, Any]]:
    """Return the statuses of a pod's containers in the order in which they start."""
    status = status_of(pod)
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def _trouble(cause: str, pod: Manifest, text: object, advice: str) -> Trouble:
    return Trouble(cause, part_of(pod), "Pod", name_of(pod), sentence(text), advice)


def _of_end(pod: Manifest) -> Trouble:
    """Return the trouble of a pod that its node has ended."""
    status, field = status_of(pod), part_of(pod).field
    reason, text = str(status.get("reason") or "Failed"), status.get("message") or "the pod has failed"
    if reason == "Evicted":
        advice = f"request in {field}.resources what it needs, or free the node of what uses too much"
        return _trouble("Evicted", pod, text, advice)
    return _trouble("PodFailed", pod, f"{reason}: {text}", "see the node that ended it, and delete the pod")


def _of_node(pod: Manifest, seen: Seen) -> Trouble | None:
    """Return the trouble of a pod whose node exists but does not report that it is healthy."""
    node = seen.node(str(pod["spec"].get("nodeName") or ""))
    ready = condition(node, "Ready") if node is not None else {}
    if node is None or ready.get("status") in (None, "True"):
        return None
    advice = f"bring node {name_of(node)} back, or delete its Node object when it is gone for good"
    text = f"node {name_of(node)} is not ready: {ready.get('message') or ready.get('reason')}"
    return _trouble("NodeNotReady", pod, text, advice)


def _of_container(pod: Manifest, container: dict[str, Any], seen: Seen) -> Trouble | None:
    state = container.get("state") or {}
    waiting = state.get("waiting") or {}
    reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
    if reason in IMAGE:
        return _of_image(pod, container, reason, message, seen)
    if reason in _CONFIG:
        text = f"container {container['name']}: {message or reason}"
        return _trouble("ConfigError", pod, text, _missing(message) or f"see {part_of(pod).field}")
    ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated") or {}
    if reason == "CrashLoopBackOff" or (ended.get("reason") == _OOM and not container.get("ready")):
        return _of_crash(pod, str(container["name"]), ended)
    return None


def is_vague(container: dict[str, Any]) -> bool:
    """Return whether a container waits for its image, and its status does not say why."""
    waiting = (container.get("state") or {}).get("waiting") or {}
    return waiting.get("reason") in IMAGE and not _BACK_OFF.sub("", str(waiting.get("message") or ""))


def _of_image(pod: Manifest, container: dict[str, Any], reason: str, message: str, seen: Seen) -> Trouble:
    said = _BACK_OFF.sub("", message)
    if not said:
        failed = [one for one in _events(pod, seen) if str(one.get("message") or "").startswith("Failed to pull")]
        said = str(failed[-1].get("message")) if failed else f"{reason} of {container.get('image') or 'the image'}"
    field = "spec.redis.image" if part_of(pod).component == "redis" else "spec.image"
    advice = f"correct {field}, see that nodes reach its registry, and name in spec.imagePullSecrets who may pull it"
    if reason == "ErrImageNeverPull":
        advice = f"load the image on the nodes, or change spec.imagePullPolicy or {field}"
    return _trouble("ImagePull", pod, said, advice)


def _of_crash(pod: Manifest, container: str, ended: dict[str, Any]) -> Trouble:
    field = part_of(pod).field
    if ended.get("reason") == _OOM:
        text = f"container {container} was ended because it used more memory than its limit (OOMKilled)"
        return _trouble("OutOfMemory", pod, text, f"raise the memory limit in {field}.resources")
    said = _last_words(str(ended.get("message") or "")) or str(ended.get("reason") or "Error")
    text = f"container {container} ended with {ended.get('exitCode', 'an error')}: {said}"
    advice = f"see `kubectl logs --previous -c {container}` of the pod, and correct what it names, or spec.image"
    return _trouble("CrashLoop", pod, text, advice)


def _last_words(log: str) -> str:
    """Return why a service ended, from the end of its log: its last message, which may have several lines."""
    lines = log.strip().splitlines()
    begins = [index for index, line in enumerate(lines) if line.startswith(_SAYS)]
    return " ".join(lines[begins[-1] :] if begins else lines[-1:])


def _events(pod: Manifest, seen: Seen) -> list[Manifest]:
    return seen.events_of("Pod", name_of(pod), pod["metadata"].get("uid"))


def is_prepared(pod: Manifest) -> bool:
    """Return whether the kubelet has mounted the volumes and set up the pod's network."""
    reasons = {((one.get("state") or {}).get("waiting") or {}).get("reason") for one in containers_of(pod)}
    return bool(reasons) and not reasons & WAITS


def _of_preparation(pod: Manifest, seen: Seen) -> Trouble | None:
    """Return the trouble of a pod whose volumes can't be mounted, or that gets no network."""
    events = _events(pod, seen)
    failed = [one for one in events if one["reason"] in _MOUNT | _SANDBOX]
    if is_prepared(pod) or not failed or age_s(seen, pod) < PATIENCE_S:
        return None
    if any(one["reason"] in _GETS_ON and event_s(one) > event_s(failed[-1]) for one in events):
        return None
    plain = [one for one in failed if not str(one.get("message") or "").startswith(_VAGUE)]
    last = (plain or failed)[-1]
    message = str(last.get("message") or last["reason"])
    if last["reason"] in _SANDBOX:
        return _trouble("NoSandbox", pod, message, "see the network plugin and the container runtime of its node")
    other = f"see the driver of {_volumes_field(part_of(pod))} and the node"
    return _trouble("Mount", pod, message, _missing(message) or other)


def _volumes_field(part: Part) -> str:
    return f"{part.field}.storage.className" if part.component in ("storage", "container") else "its volumes"


def _missing(message: str) -> str | None:
    """Return what to do about a missing Secret or ConfigMap, None when the message is about something else."""
    found = re.search(r'\b(secret|configmap) "([^"]+)" not found', message, re.IGNORECASE)
    if found:
        kind = "Secret" if found[1].lower() == "secret" else "ConfigMap"
        return f"make the {kind} {found[2]} in this namespace, or name another one where the StorageCluster names it"
    if re.search(r"non-existent|couldn't find key", message):
        return "add the key that is missing, or name another one where the StorageCluster names it"
    return None


def is_slow(pod: Manifest, seen: Seen) -> bool:
    """Return whether a pod's containers run without the pod becoming ready for longer than a start takes."""
    since_s = moment_s(condition(pod, "Ready").get("lastTransitionTime"))
    running = any("running" in (one.get("state") or {}) for one in containers_of(pod))
    return bool(since_s) and running and seen.now_s - since_s > SLOW_S


def _of_slowness(pod: Manifest, seen: Seen) -> Trouble | None:
    if not is_slow(pod, seen):
        return None
    unhealthy = [one for one in _events(pod, seen) if one["reason"] == "Unhealthy"]
    names = ", ".join(_unready(pod))
    text = str(unhealthy[-1].get("message")) if unhealthy else f"containers with unready status: {names}"
    advice = f"see `kubectl logs` of the pod (containers {names}), and `kubectl swiftlet health`"
    return _trouble("NotReady", pod, text, advice)


def _unready(pod: Manifest) -> Iterator[str]:
    return (str(one.get("name")) for one in containers_of(pod) if not one.get("ready"))


def doing(pod: Manifest, seen: Seen) -> tuple[str, str]:
    """Return what a pod with a node, with which nothing is wrong, is doing until it is ready."""
    if pod["metadata"].get("deletionTimestamp"):
        return "is ending", "are ending"
    events = [one["reason"] for one in _events(pod, seen) if one["reason"] in _GETS_ON]
    if not is_prepared(pod):
        pulls = bool(events) and events[-1] == "Pulling"
        return ("is pulling the image", "are pulling the image") if pulls else ("is being started", "are being started")
    return "is not ready yet", "are not ready yet"
