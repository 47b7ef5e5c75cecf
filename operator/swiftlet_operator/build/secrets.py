"""Secrets: the cluster's keys, the users file, and users' credentials."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from swiftlet.crd import Resource, StorageUserSpec
from swiftlet.documents import write_document
from swiftlet_operator.build.settings import CLUSTER_KEY, HASH_SUFFIX, USERS_FILE
from swiftlet_operator.build.site import KEYS, METADATA, METADATA_PORT, Site
from swiftlet_operator.manifests import GROUP, SECRET, Manifest

CREDENTIALS = "credentials"
METADATA_URL = "metadataUrl"
"""The entry of a user's Secret that says where grants are given; missing without direct access."""
KEY_ENTRIES = (CLUSTER_KEY, HASH_SUFFIX)
"""The entries that the Secret with the keys must have."""
KEY_GENERATION = f"{GROUP}/key-generation"
"""An annotation on the keys: the generation that all services have reached."""


@dataclass(frozen=True, slots=True)
class Login:
    """A line of the users file."""

    account: str
    user: str
    roles: tuple[str, ...]
    secret_hash: str


def build_keys(site: Site, cluster_key: str, hash_suffix: str) -> Manifest:
    """Return `X-keys`: made once and kept when the cluster goes, because without it no object is found again."""
    data = {CLUSTER_KEY: cluster_key, HASH_SUFFIX: hash_suffix}
    notes = {KEY_GENERATION: str(site.spec.keys.generation)}
    return site.object(SECRET, keys_name(site.name), KEYS, _opaque(data), annotations=notes, owned=False, guarded=True)


def build_keys_copy(site: Site, data: Mapping[str, str], notes: Mapping[str, str]) -> Manifest:
    """Return `X-keys-copy`: the entries of `X-keys` in base64, and how far a rotation has come; kept as long as the
    keys.
    """
    content = {"type": "Opaque", "data": {key: data[key] for key in KEY_ENTRIES}}
    name = keys_copy_name(site.name)
    return site.object(SECRET, name, KEYS, content, annotations=notes, owned=False, guarded=True)


def keys_name(cluster: str) -> str:
    """Return the name of the Secret with a cluster's keys."""
    return f"{cluster}-keys"


def keys_copy_name(cluster: str) -> str:
    """Return the name of the Secret with a copy of a cluster's keys."""
    return f"{cluster}-keys-copy"


def build_users(site: Site, logins: Iterable[Login]) -> Manifest:
    """Return `X-users`: the users file."""
    entries = [
        {"account": one.account, "user": one.user, "roles": list(one.roles), "secret_hash": one.secret_hash}
        for one in sorted(logins, key=lambda one: (one.account, one.user))
    ]
    text = write_document(entries)
    return site.object(SECRET, site.child("users"), "users", _opaque({USERS_FILE: text}))


def build_credentials(site: Site, user: Resource[StorageUserSpec], key: str) -> Manifest:
    """Return a user's generated key, with what else a client needs to log in; it is deleted with the StorageUser."""
    data = {"key": key, "user": user.spec.login, **places(site)}
    manifest = site.object(SECRET, credentials_name(user), CREDENTIALS, _opaque(data), owned=False)
    manifest["metadata"]["ownerReferences"] = [user.owner_reference]
    return manifest


def credentials_name(user: Resource[StorageUserSpec]) -> str:
    """Return the name of the Secret with a user's key: the one in its secretRef, or else the generated one."""
    return user.spec.secret_ref.name if user.spec.secret_ref else f"{user.meta.name}-{CREDENTIALS}"


def credentials_key(user: Resource[StorageUserSpec]) -> str:
    """Return the entry of that Secret that has the key."""
    return user.spec.secret_ref.key if user.spec.secret_ref else "key"


def endpoint(site: Site) -> str:
    """Return the URL at which clients reach the API: the one in the spec, otherwise that of the Service."""
    if site.spec.external_url is not None:
        return site.spec.external_url
    scheme, usual = ("https", 443) if site.spec.tls.enabled else ("http", 80)
    port = site.spec.api_port
    return f"{scheme}://{site.name}.{site.namespace}.svc" + ("" if port == usual else f":{port}")


def auth_url(site: Site) -> str:
    """Return the URL at which clients log in."""
    return f"{endpoint(site)}/auth/v1.0"


def metadata_url(site: Site) -> str | None:
    """Return the URL at which clients with direct access ask for grants; None when the cluster has none."""
    if not site.spec.direct_access.enabled:
        return None
    return f"http://{site.child(METADATA)}.{site.namespace}.svc:{METADATA_PORT}"


def places(site: Site) -> dict[str, str]:
    """Return the entries of a user's Secret that say where the store is."""
    found = {"authUrl": auth_url(site)}
    if (url := metadata_url(site)) is not None:
        found[METADATA_URL] = url
    return found


def _opaque(data: Mapping[str, str]) -> Manifest:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"type": "Opaque", "data": encoded}
