"""The ConfigMap `X-settings`: one settings file for all services, and the policies, which may grow while they run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from swiftlet.documents import write_document
from swiftlet.settings import SERVICES
from swiftlet.settings.sections import AGGREGATE_BELOW, MAX_AGGREGATE_BELOW, MAX_PACK_BELOW
from swiftlet_operator.build.site import DATABASE_DEVICE, REDIS, REDIS_PORT, Policy, Site
from swiftlet_operator.manifests import CONFIG_MAP, Manifest, digest_of

FILE = "settings.yaml"
POLICIES_FILE = "policies.yaml"
DIRECTORY = "/etc/swiftlet/settings"
KEYS_DIRECTORY = "/etc/swiftlet/keys"
USERS_DIRECTORY = "/etc/swiftlet/users"
RINGS_DIRECTORY = "/etc/swiftlet/rings"
CLUSTER_KEY = "cluster-key"
HASH_SUFFIX = "hash-path-suffix"
USERS_FILE = "users.yaml"
QUOTAS_DIRECTORY = "/etc/swiftlet/quotas"
QUOTAS_FILE = "quotas.yaml"
TLS_DIRECTORY = "/etc/swiftlet/tls"
TLS_FILES = ("tls.crt", "tls.key")
"""The entries of a Secret of type kubernetes.io/tls: certificate and key."""
REDIS_DIRECTORY = "/etc/swiftlet/redis"
REDIS_PASSWORD = "password"  # noqa: S105 - a file name
"""The file with Redis' password."""
REDIS_CA = "ca.crt"
"""The file with the authorities of an external Redis' certificate."""
REDIS_CERTIFICATE = "redis.crt"
"""The file with the certificate that the embedded Redis has."""
REALMS_DIRECTORY = "/etc/swiftlet/realms"
REALMS_FILE = "realms.conf"
"""The file with the realms of container sync."""
CACHE_DIRECTORY = "/var/cache/swiftlet"
"""The directory with the last good rings, for services that have no device for them."""


def settings_of(site: Site) -> dict[str, Any]:
    """Return the settings file as data. What differs from pod to pod comes from the pods' environments."""
    spec = site.spec
    proxy: dict[str, Any] = {"workers": spec.proxy.workers}
    if url := spec.proxy.storage_url or spec.external_url:
        proxy["storage_url"] = url
    if not spec.proxy.front:
        # This is written only where it differs from the default, so that clusters without it restart nothing.
        proxy["front"] = False
    if spec.tls.enabled:
        certificate, key = TLS_FILES
        proxy |= {"tls_cert_file": f"{TLS_DIRECTORY}/{certificate}", "tls_key_file": f"{TLS_DIRECTORY}/{key}"}
    redis = _redis(site)
    return {
        "cluster": {
            "name": site.name,
            "key_file": f"{KEYS_DIRECTORY}/{CLUSTER_KEY}",
            "rings": RINGS_DIRECTORY,
            "ring_cache": CACHE_DIRECTORY,
            "policies_file": f"{DIRECTORY}/{POLICIES_FILE}",
            # This is written only where it differs from the default, as above.
            **({} if site.encryption == "none" else {"encryption": site.encryption}),
            **({"direct_access": True} if spec.direct_access.enabled else {}),
        },
        "auth": {"users_file": f"{USERS_DIRECTORY}/{USERS_FILE}", "token_life_s": spec.auth.token_life_seconds},
        "quota": {"file": f"{QUOTAS_DIRECTORY}/{QUOTAS_FILE}"},
        "proxy": proxy,
        "metadata": {"workers": spec.metadata.workers},
        "container": {"devices": [DATABASE_DEVICE]},
        "replicator": {
            "interval_s": spec.replicator.interval_seconds,
            "concurrency": spec.replicator.concurrency,
            "bytes_per_s": spec.replicator.bytes_per_second,
            # This is written only where it differs from the default, as above.
            **(
                {"link_bytes_per_s": spec.replicator.link_bytes_per_second}
                if spec.replicator.link_bytes_per_second
                else {}
            ),
            "error_suppression_limit": spec.replicator.error_suppression_limit,
            "error_suppression_interval_s": spec.replicator.error_suppression_interval_seconds,
        },
        **({"redis": redis} if redis else {}),
        **_realms(site),
    }


def _realms(site: Site) -> dict[str, Any]:
    """Return the settings for container sync; nothing when there is none."""
    sync = site.spec.container_sync
    if sync is None:
        return {}
    current = {} if sync.current is None else {"current": sync.current}
    return {"realms": {"file": f"{REALMS_DIRECTORY}/{REALMS_FILE}", **current}}


def _redis(site: Site) -> dict[str, Any]:
    """Return the settings for the Redis that replicators share; nothing when there is no Redis."""
    spec = site.spec.redis
    if spec.mode == "embedded":
        return _embedded_redis(site) if site.has_embedded_redis else {}
    found = {"url": f"{'rediss' if spec.speaks_tls else 'redis'}://{spec.address}"}
    if spec.password_secret_ref is not None:
        found["password_file"] = f"{REDIS_DIRECTORY}/{REDIS_PASSWORD}"
    if spec.ca_secret_ref is not None:
        found["ca_file"] = f"{REDIS_DIRECTORY}/{REDIS_CA}"
    return found


def _embedded_redis(site: Site) -> dict[str, Any]:
    """Return the settings for the embedded Redis, whose certificate is that of the API: clients compare the
    certificate, not the name of its Service.
    """
    scheme, certificate = "redis", {}
    if site.spec.tls.enabled:
        scheme, certificate = "rediss", {"certificate_file": f"{REDIS_DIRECTORY}/{REDIS_CERTIFICATE}"}
    url = f"{scheme}://{site.child(REDIS)}.{site.namespace}.svc:{REDIS_PORT}"
    return {"url": url, "password_file": f"{REDIS_DIRECTORY}/{REDIS_PASSWORD}", **certificate}


def restart_digest(site: Site, *services: str) -> str:
    """Return a digest that changes when services must be restarted for new settings, which they read at their start."""
    read = {section for service in services for section in SERVICES[service].model_fields}
    return digest_of({name: value for name, value in settings_of(site).items() if name in read})


def build_settings(site: Site) -> Manifest:
    """Build the ConfigMap with the settings of all services."""
    data = {
        FILE: write_document(settings_of(site)),
        POLICIES_FILE: write_document([_policy(policy) for policy in site.policies]),
    }
    return site.object(CONFIG_MAP, site.child("settings"), "settings", {"data": data})


def _policy(policy: Policy) -> dict[str, Any]:
    """Return a policy for the policies file, without defaults.

    Services of a release that does not know a setting would refuse the file.
    """
    made: dict[str, Any] = {
        "index": policy.index,
        "name": policy.name,
        "default": policy.default,
        "deprecated": policy.deprecated,
    }
    if policy.aggregate_below != AGGREGATE_BELOW:
        made["aggregate_below"] = min(policy.aggregate_below, MAX_AGGREGATE_BELOW)
    if policy.etag != "md5":
        made["etag"] = policy.etag
    if policy.write_quorum != "majority":
        made["write_quorum"] = policy.write_quorum
    if policy.coding is not None:
        made["coding"] = asdict(policy.coding)
    if policy.pack_below:
        made["pack_below"] = min(policy.pack_below, MAX_PACK_BELOW)
    return made
