"""The embedded Redis or Valkey, a StatefulSet of one pod that stores nothing, with a password; and the files for any
Redis.

The Secret `X-redis` has the password twice: as the file that replicators read, and within the server's configuration.
The server has a configuration file rather than arguments, which everybody who may see the pod could read. It reads the
file when it starts, so another password or certificate restarts it. That loses nothing: what it held is written again
with the next heartbeats. Replicators read their files for each connection and are not restarted.
"""

from __future__ import annotations

import base64
from typing import Any

from swiftlet_operator.build import settings
from swiftlet_operator.build.pods import component_labels, container_security, pod_security
from swiftlet_operator.build.shape import head, shape
from swiftlet_operator.build.site import REDIS, REDIS_PORT, Site
from swiftlet_operator.manifests import COMPONENT_LABEL, RESTART_DIGEST, SECRET, STATEFUL_SET, Manifest

CONFIGURATION = "redis.conf"
_CONFIGURATION_DIRECTORY = "/etc/swiftlet/redis"
_USER_ID = 999
"""The redis image's own; any other will do."""
_COMMAND = f"exec $(command -v valkey-server || command -v redis-server) {_CONFIGURATION_DIRECTORY}/{CONFIGURATION}"
"""The command for all images alike, instead of each image's own."""


def redis_name(cluster: str) -> str:
    """Return the name of the embedded Redis' Secret, Service and StatefulSet."""
    return f"{cluster}-{REDIS}"


def build_redis_secret(site: Site, password: str) -> Manifest:
    """Return `X-redis`: the password, which must not have spaces or quotes, and the server's configuration."""
    entries = {settings.REDIS_PASSWORD: password, CONFIGURATION: configuration(site, password)}
    data = {key: base64.b64encode(value.encode()).decode() for key, value in entries.items()}
    return site.object(SECRET, redis_name(site.name), REDIS, {"type": "Opaque", "data": data})


def configuration(site: Site, password: str) -> str:
    """Return a configuration that Redis 6 and later and Valkey read; without a `bind` line they listen on all
    addresses.
    """
    lines = [
        "protected-mode yes",
        f"requirepass {password}",
        'save ""',
        "appendonly no",
        "maxmemory 256mb",
        "maxmemory-policy allkeys-lru",
        "dir /data",
    ]
    if site.tls_secret is None:
        lines.append(f"port {REDIS_PORT}")
    else:
        certificate, key = settings.TLS_FILES
        lines += ["port 0", f"tls-port {REDIS_PORT}", "tls-auth-clients no"]
        lines += [
            f"tls-cert-file {settings.TLS_DIRECTORY}/{certificate}",
            f"tls-key-file {settings.TLS_DIRECTORY}/{key}",
        ]
    return "\n".join([*lines, ""])


def redis_files(site: Site) -> list[dict[str, Any]]:
    """Return the environment and mounts by which a replicator gets the Secrets for Redis, embedded or external."""
    spec = site.spec.redis
    found = []
    if site.has_embedded_redis:
        found.append(_file(redis_name(site.name), settings.REDIS_PASSWORD, settings.REDIS_PASSWORD))
        if site.tls_secret is not None:
            found.append(_file(site.tls_secret, settings.TLS_FILES[0], settings.REDIS_CERTIFICATE))
    if spec.password_secret_ref is not None:
        found.append(_file(spec.password_secret_ref.name, spec.password_secret_ref.key, settings.REDIS_PASSWORD))
    if spec.ca_secret_ref is not None:
        found.append(_file(spec.ca_secret_ref.name, spec.ca_secret_ref.key, settings.REDIS_CA))
    return found


def redis_volumes(site: Site) -> list[dict[str, Any]]:
    """Return the volume with these files, if there are any."""
    files = redis_files(site)
    return [{"name": REDIS, "projected": {"sources": files}}] if files else []


def _file(secret: str, key: str, path: str) -> dict[str, Any]:
    # Nothing waits for Redis, and nothing for its password and certificate.
    return {"secret": {"name": secret, "items": [{"key": key, "path": path}], "optional": True}}


def build_redis(site: Site) -> list[Manifest]:
    """Return the embedded Redis' objects; nothing when Redis is external, or when nobody named an image."""
    if not site.has_embedded_redis:
        return []
    where = site.spec.redis
    probe = {"tcpSocket": {"port": "redis"}, "periodSeconds": 5, "timeoutSeconds": 3}
    container: dict[str, Any] = {
        "name": "redis",
        "image": site.redis_image,
        "imagePullPolicy": site.spec.image_pull_policy,
        "command": ["/bin/sh", "-c", _COMMAND],
        "ports": [{"name": "redis", "containerPort": REDIS_PORT, "protocol": "TCP"}],
        "livenessProbe": probe,
        "readinessProbe": probe,
        "securityContext": container_security(),
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "configuration", "mountPath": _CONFIGURATION_DIRECTORY, "readOnly": True},
        ],
    }
    if where.resources.manifest:
        container["resources"] = where.resources.manifest
    pod: dict[str, Any] = {
        **shape(site, where),
        "securityContext": pod_security(_USER_ID),
        "containers": [container],
        "volumes": [
            {"name": "data", "emptyDir": {}},
            _secret("configuration", site.child(REDIS), CONFIGURATION),
        ],
    }
    if site.tls_secret is not None:
        container["volumeMounts"].append({"name": "tls", "mountPath": settings.TLS_DIRECTORY, "readOnly": True})
        pod["volumes"].append(_secret("tls", site.tls_secret, *settings.TLS_FILES))
    spec = {
        "serviceName": site.child(REDIS),
        "replicas": 1,
        "updateStrategy": {"type": "RollingUpdate"},
        "revisionHistoryLimit": 3,
        "selector": {"matchLabels": component_labels(site, REDIS)},
        "template": {
            "metadata": head(site, where, {COMPONENT_LABEL: REDIS}, {RESTART_DIGEST: site.redis_digest}),
            "spec": pod,
        },
    }
    return [site.object(STATEFUL_SET, site.child(REDIS), REDIS, {"spec": spec})]


def _secret(name: str, secret: str, *keys: str) -> dict[str, Any]:
    return {"name": name, "secret": {"secretName": secret, "items": [{"key": key, "path": key} for key in keys]}}
