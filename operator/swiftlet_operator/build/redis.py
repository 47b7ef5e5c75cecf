"""The embedded Redis: a StatefulSet of one pod that keeps nothing, for nothing is only there."""

from __future__ import annotations

from swiftlet_operator.build.pods import component_labels, container_security, pod_security
from swiftlet_operator.build.site import REDIS, REDIS_PORT, Site
from swiftlet_operator.manifests import COMPONENT_LABEL, STATEFUL_SET, Manifest

_USER_ID = 999
"""The redis image's own."""
_ARGUMENTS = [
    *("--save", ""),
    *("--appendonly", "no"),
    *("--maxmemory", "256mb"),
    *("--maxmemory-policy", "allkeys-lru"),
]


def build_redis(site: Site) -> list[Manifest]:
    """Nothing when Redis is external, or when nobody named an image."""
    if site.spec.redis.mode != "embedded" or site.redis_image is None:
        return []
    where = site.spec.redis
    probe = {"tcpSocket": {"port": "redis"}, "periodSeconds": 5, "timeoutSeconds": 3}
    container = {
        "name": "redis",
        "image": site.redis_image,
        "imagePullPolicy": site.spec.image_pull_policy,
        "args": ["redis-server", *_ARGUMENTS],
        "ports": [{"name": "redis", "containerPort": REDIS_PORT, "protocol": "TCP"}],
        "livenessProbe": probe,
        "readinessProbe": probe,
        "securityContext": container_security(),
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    if where.resources.manifest:
        container["resources"] = where.resources.manifest
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(_USER_ID),
        "containers": [container],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    if where.node_selector:
        pod["nodeSelector"] = dict(where.node_selector)
    if where.tolerations:
        pod["tolerations"] = [one.manifest for one in where.tolerations]
    if site.spec.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": one.name} for one in site.spec.image_pull_secrets]
    spec = {
        "serviceName": site.child(REDIS),
        "replicas": 1,
        "updateStrategy": {"type": "RollingUpdate"},
        "revisionHistoryLimit": 3,
        "selector": {"matchLabels": component_labels(site, REDIS)},
        "template": {"metadata": {"labels": {**site.labels, COMPONENT_LABEL: REDIS}}, "spec": pod},
    }
    return [site.object(STATEFUL_SET, site.child(REDIS), REDIS, {"spec": spec})]
