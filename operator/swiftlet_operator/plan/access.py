"""Users and quotas: generated credentials, the users file and the quota file."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from swiftlet.crd import Resource, StorageUserSpec
from swiftlet.documents import read_document
from swiftlet_operator.build.quotas import build_quotas, quotas_name
from swiftlet_operator.build.secrets import (
    METADATA_URL,
    Login,
    build_credentials,
    credentials_key,
    credentials_name,
    places,
)
from swiftlet_operator.build.settings import USERS_FILE
from swiftlet_operator.build.site import Site
from swiftlet_operator.checks import Verdict
from swiftlet_operator.logins import NOT_ALLOWED, RESERVED, TWICE, roles_of
from swiftlet_operator.manifests import CONFIG_MAP, QUOTA, SECRET, USER, Manifest
from swiftlet_operator.plan.actions import Fresh, Patch
from swiftlet_operator.world import World


def access(world: World, site: Site, fresh: Fresh, verdicts: Sequence[Verdict]) -> tuple[list[Manifest], list[Login]]:
    """Return the credentials to make, and the lines of the users file.

    A user that asks for a role that is not allowed keeps a login that it had, with the rest of its roles, and gets no
    new one.
    """
    refused = {(one.name, one.reason) for one in verdicts if one.violated and one.kind == USER.kind}
    old = _hashes(world)
    made: list[Manifest] = []
    logins: list[Login] = []
    for user in world.users:
        name = user.meta.name
        if user.meta.deleting or (name, TWICE) in refused or (name, RESERVED) in refused:
            continue
        before = old.get((user.spec.account, user.spec.user))
        roles = roles_of(world, user)
        if (name, NOT_ALLOWED) in refused and (before is None or not roles):
            continue
        secret = _secret(world, user)
        if secret is None and user.spec.secret_ref is None and world.secrets.get(credentials_name(user)) is None:
            secret = fresh.token()
            made.append(build_credentials(site, user, secret))
        if secret is None and before is None:
            continue
        # While the Secret is away the user's old key stays in force.
        hashed = fresh.hashed(secret, before) if secret is not None else str(before)
        logins.append(Login(user.spec.account, user.spec.user, roles, hashed))
    return made, logins


def moved(world: World, site: Site) -> list[Patch]:
    """Return patches of generated credentials that say that the store is somewhere else than it is."""
    wanted = {"authUrl": None, METADATA_URL: None, **places(site)}
    patches = []
    for user in world.users:
        live = world.secrets.get(credentials_name(user))
        if user.spec.secret_ref is not None or live is None:
            continue
        if wrong := {entry: url for entry, url in wanted.items() if decoded(live, entry) != url}:
            data = {entry: url and base64.b64encode(url.encode()).decode() for entry, url in wrong.items()}
            patches.append(Patch(SECRET, credentials_name(user), {"data": data}))
    return patches


def quotas(world: World, site: Site, verdicts: Sequence[Verdict]) -> list[Manifest]:
    """Return the quota file; the one in force stays while the cluster's StorageQuota can't be used."""
    refused = {one.name for one in verdicts if one.violated and one.kind == QUOTA.kind}
    good = [one for one in world.quotas if one.meta.name not in refused and not one.meta.deleting]
    damaged = bool(refused) or any(one.kind == QUOTA for one in world.unreadable)
    if not good and damaged and world.child(CONFIG_MAP, quotas_name(site.name)) is not None:
        return []
    return [build_quotas(site, good[0].spec if good else None)]


def _secret(world: World, user: Resource[StorageUserSpec]) -> str | None:
    live = world.secrets.get(credentials_name(user))
    return decoded(live, credentials_key(user)) if live is not None else None


def decoded(secret: Mapping[str, Any], key: str) -> str | None:
    """Return an entry of a Secret as text; None when it is missing, empty or not text."""
    try:
        text = base64.b64decode((secret.get("data") or {}).get(key, ""), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    # A line end at the end of a file that the Secret was made from is no part of the key.
    return text.rstrip("\r\n") or None


def _hashes(world: World) -> dict[tuple[str, str], str]:
    """Return the hashes in the live users file."""
    live = world.child(SECRET, f"{world.cluster.meta.name}-users")
    try:
        entries = read_document(decoded(live, USERS_FILE) or "" if live else "") or []
        return {(entry["account"], entry["user"]): str(entry["secret_hash"]) for entry in entries}
    except (yaml.YAMLError, KeyError, TypeError):
        # Somebody changed the file by hand: all hashes are made anew.
        return {}
