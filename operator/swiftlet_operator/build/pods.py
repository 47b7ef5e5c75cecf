"""What all pods have in common: user, mounts, probes, and scheduling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from swiftlet.crd import Resources
from swiftlet.crd.pods import PodSpec
from swiftlet_operator.build import settings
from swiftlet_operator.build.names import ring_map
from swiftlet_operator.build.sealed import with_sealed_keys
from swiftlet_operator.build.shape import head, shape
from swiftlet_operator.build.site import API_PORT, MANAGEMENT_PORT, PROXY, Group, Site
from swiftlet_operator.manifests import (
    COMPONENT_LABEL,
    GROUP,
    INSTANCE_LABEL,
    MANAGEMENT,
    RESTART_DIGEST,
)

API_LABEL = f"{GROUP}/api"
"""A label on every pod that serves the Swift API, so that one Service finds proxies and storage pods with a proxy."""
USER_ID = 65532
PRE_STOP_S = 5
"""Seconds for endpoints to be removed before the process is asked to end."""
GRACE_S = 40
"""Seconds that are more than the services' drain time and the time before it."""
STARTUP_S = 600
"""Seconds for a start, because a device with much data takes long to open."""
EXPECTED_POLICIES = 8
"""Policies with lower indexes are added without a restart, if their rings are no larger than the existing ones."""
_PERIOD_S = 5


QUOTAS_MOUNT = {"name": "quotas", "mountPath": settings.QUOTAS_DIRECTORY, "readOnly": True}
USERS_MOUNT = {"name": "users", "mountPath": settings.USERS_DIRECTORY, "readOnly": True}


def service_container(
    site: Site,
    service: str,
    port_name: str,
    port: int,
    resources: Resources,
    *,
    env: Sequence[Mapping[str, Any]] = (),
    mounts: Sequence[Mapping[str, Any]] = (),
    ring_cache: str | None = None,
    scheme: str = "HTTP",
    more_ports: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Return a container that runs one service.

    `ring_cache` is a directory on a device of its own to keep rings in. `more_ports` has by name the ports that it
    listens on besides the probed one.
    """
    ports = {port_name: port, **(more_ports or {})}
    cache = {"name": "SWIFTLET_CLUSTER__RING_CACHE", "value": ring_cache}
    # These come from the volume and not from the settings, which pods of an earlier template read too.
    suffix = f"{settings.KEYS_DIRECTORY}/{settings.HASH_SUFFIX}"
    container: dict[str, Any] = {
        "name": service,
        "image": site.image,
        "imagePullPolicy": site.spec.image_pull_policy,
        "args": [service, "--config", f"{settings.DIRECTORY}/{settings.FILE}"],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "SWIFTLET_CLUSTER__HASH_PATH_SUFFIX_FILE", "value": suffix},
            *([cache] if ring_cache is not None else []),
            *env,
        ],
        "ports": [{"name": name, "containerPort": number, "protocol": "TCP"} for name, number in ports.items()],
        "volumeMounts": [
            {"name": "settings", "mountPath": settings.DIRECTORY, "readOnly": True},
            {"name": "keys", "mountPath": settings.KEYS_DIRECTORY, "readOnly": True},
            {"name": "rings", "mountPath": settings.RINGS_DIRECTORY, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - an emptyDir of the pod's own
            *([{"name": "cache", "mountPath": settings.CACHE_DIRECTORY}] if ring_cache is None else []),
            *mounts,
        ],
        "livenessProbe": _probe("/healthz", port_name, scheme, _PERIOD_S * 2, 6),
        "readinessProbe": _probe("/readyz", port_name, scheme, _PERIOD_S, 2),
        "startupProbe": _probe("/healthz", port_name, scheme, _PERIOD_S, STARTUP_S // _PERIOD_S),
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(PRE_STOP_S)]}}},
        # The end of its log is then in the pod's status, from which conditions take it.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": container_security(),
    }
    if resources.manifest:
        container["resources"] = resources.manifest
    return container


def container_security(capabilities: Sequence[str] = ()) -> dict[str, Any]:
    """Return the restricted security context, with these capabilities."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]} | ({"add": list(capabilities)} if capabilities else {}),
    }


def pod_security(user_id: int = USER_ID) -> dict[str, Any]:
    """Return a security context without root, which makes files on volumes ours once."""
    return {
        "runAsNonRoot": True,
        "runAsUser": user_id,
        "runAsGroup": user_id,
        "fsGroup": user_id,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _probe(path: str, port: str, scheme: str, period_s: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": port, "scheme": scheme},
        "periodSeconds": period_s,
        "timeoutSeconds": 3,
        "failureThreshold": failures,
    }


def proxy_container(site: Site, resources: Resources, env: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Return the container of the Swift API, for a pod of its own or beside an object server."""
    mounts: list[dict[str, Any]] = [USERS_MOUNT, QUOTAS_MOUNT]
    scheme = "HTTP"
    if site.tls_secret is not None:
        mounts.append({"name": "tls", "mountPath": settings.TLS_DIRECTORY, "readOnly": True})
        scheme = "HTTPS"
    mounts += realms_mounts(site)
    more = {MANAGEMENT: MANAGEMENT_PORT}
    return service_container(
        site, PROXY, "api", API_PORT, resources, env=env, mounts=mounts, scheme=scheme, more_ports=more
    )


def volumes(
    site: Site,
    *,
    proxy: bool = False,
    quotas: bool = False,
    users: bool = False,
    realms: bool = False,
    cache: bool = True,
) -> list[dict[str, Any]]:
    """Return the volumes of every pod; with what a proxy reads, with quotas, users, realms, and a cache for rings if
    wanted.

    Rings are optional: pods are scheduled before there can be any, because rings depend on where they run.
    """
    found: list[dict[str, Any]] = [
        {"name": "settings", "configMap": {"name": site.child("settings")}},
        _secret_volume("keys", site.child("keys"), settings.CLUSTER_KEY, settings.HASH_SUFFIX),
        {"name": "rings", "projected": {"sources": [_ring_source(site, *one) for one in _chunks(site)]}},
        {"name": "tmp", "emptyDir": {}},
    ]
    if cache:
        found.append({"name": "cache", "emptyDir": {}})
    if proxy or users:
        found.append(_secret_volume("users", site.child("users"), settings.USERS_FILE))
    if proxy or quotas:
        found.append({"name": "quotas", "configMap": {"name": site.child("quotas")}})
    if proxy and site.tls_secret is not None:
        found.append(_secret_volume("tls", site.tls_secret, *settings.TLS_FILES))
    if proxy or realms:
        found += _realms_volumes(site)
    return found


def realms_mounts(site: Site) -> list[dict[str, Any]]:
    """Return the mount by which a service reads the realms of container sync, if there are any."""
    mount = {"name": "realms", "mountPath": settings.REALMS_DIRECTORY, "readOnly": True}
    return [mount] if site.spec.container_sync is not None else []


def _realms_volumes(site: Site) -> list[dict[str, Any]]:
    sync = site.spec.container_sync
    if sync is None:
        return []
    items = [{"key": sync.realms_secret_ref.key, "path": settings.REALMS_FILE}]
    return [{"name": "realms", "secret": {"secretName": sync.realms_secret_ref.name, "items": items}}]


def _secret_volume(name: str, secret: str, *keys: str) -> dict[str, Any]:
    return {"name": name, "secret": {"secretName": secret, "items": [{"key": key, "path": key} for key in keys]}}


def _chunks(site: Site) -> list[tuple[str, int]]:
    """Return the existing rings, and places for those of policies to come, as running pods' volumes can't change."""
    counts = dict(site.ring_chunks)
    most = max((count for ring, count in counts.items() if ring.startswith("object-")), default=1)
    for ring in (f"object-{index}" for index in range(EXPECTED_POLICIES)):
        counts[ring] = max(most, counts.get(ring, 0))
    return [(ring, index) for ring, count in sorted(counts.items()) for index in range(count)]


def _ring_source(site: Site, ring: str, index: int) -> dict[str, Any]:
    items = [{"key": "chunk", "path": f"{ring}.ring.{index}"}]
    return {"configMap": {"name": ring_map(site.name, ring, index), "items": items, "optional": True}}


def template(
    site: Site,
    labels: Mapping[str, str],
    digest: str,
    where: PodSpec,
    containers: Sequence[Mapping[str, Any]],
    pod_volumes: Sequence[Mapping[str, Any]],
    *,
    annotations: Mapping[str, str] | None = None,
    node_selector: Mapping[str, str] | None = None,
    zone: str | None = None,
    region: str | None = None,
    has_data: bool = False,
) -> dict[str, Any]:
    """Return a pod template; pods that `has_data` share no node with each other where the spec requires it.

    They also keep sealed copies of the keys.
    """
    apart = has_data and site.spec.placement == "required"
    if has_data:
        containers, pod_volumes = with_sealed_keys(site, containers, pod_volumes)
    spec = {
        **shape(site, where, _alike(site, labels), node_selector=node_selector, zone=zone, region=region, apart=apart),
        "terminationGracePeriodSeconds": GRACE_S,
        "securityContext": pod_security(),
        "containers": list(containers),
        "volumes": list(pod_volumes),
    }
    return {"metadata": head(site, where, labels, {RESTART_DIGEST: digest, **(annotations or {})}), "spec": spec}


def pod_labels(site: Site, group: Group) -> dict[str, str]:
    """Return the labels by which a group's pods are selected."""
    return {INSTANCE_LABEL: site.name, **group.labels}


def _alike(site: Site, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that select the pods of all zones of a pool, but not those of other pools."""
    alike = {name: value for name, value in labels.items() if name != f"{GROUP}/zone" and name != API_LABEL}
    return {INSTANCE_LABEL: site.name, **alike}


def component_labels(site: Site, component: str) -> dict[str, str]:
    """Return the labels by which a component's pods are selected."""
    return {INSTANCE_LABEL: site.name, COMPONENT_LABEL: component}
