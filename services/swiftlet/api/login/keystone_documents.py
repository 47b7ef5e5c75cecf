"""The JSON documents of Keystone's APIs: tokens, catalogs, versions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from swiftlet.auth.identity import Identity
from swiftlet.auth.tokens import Token

DOMAIN = {"id": "default", "name": "Default"}
REGION = "RegionOne"
_UPDATED = "2026-11-21T00:00:00Z"


def moment(seconds: int) -> str:
    """Return a time in Keystone's form."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000000Z")


def project(account: str) -> dict[str, Any]:
    """Return an account as a project, by the name that its users log in with."""
    return {"id": account, "name": account, "domain": DOMAIN}


def roles(identity: Identity) -> list[dict[str, str]]:
    """Return the roles of a user; the id is the name."""
    return [{"id": role.value, "name": role.value} for role in sorted(identity.roles)]


def services(base: str, account: str) -> Sequence[tuple[str, str, str]]:
    """Return type, name and URL of each service for an account."""
    return (("object-store", "swift", f"{base}/v1/AUTH_{account}"), ("identity", "keystone", f"{base}/v3"))


def catalog_v3(base: str, account: str) -> list[dict[str, Any]]:
    """Return the services in version 3's form."""
    return [
        {
            "id": name,
            "type": kind,
            "name": name,
            "endpoints": [
                {"id": f"{name}-{face}", "interface": face, "region": REGION, "region_id": REGION, "url": url}
                for face in ("public", "internal", "admin")
            ],
        }
        for kind, name, url in services(base, account)
    ]


def token_v3(
    token: Token, account: str, methods: Sequence[str], catalog: list[dict[str, Any]] | None
) -> dict[str, Any]:
    """Return a token in version 3's form, scoped to an account."""
    identity = token.identity
    known = {
        "methods": list(methods),
        "user": {
            "id": f"{identity.tenant}:{identity.user}",
            "name": identity.user,
            "domain": DOMAIN,
            "password_expires_at": None,
        },
        "audit_ids": [token.id],
        "issued_at": moment(token.issued),
        "expires_at": moment(token.expires),
        "project": project(account),
        "is_domain": False,
        "roles": roles(identity),
    }
    return {"token": known if catalog is None else known | {"catalog": catalog}}


def access_v2(token: Token, text: str, account: str, base: str) -> dict[str, Any]:
    """Return a token in version 2's form."""
    identity = token.identity
    tenant = {"id": account, "name": account, "description": None, "enabled": True}
    held = roles(identity)
    user = {"id": f"{identity.tenant}:{identity.user}", "name": identity.user, "username": identity.user}
    return {
        "access": {
            "token": {
                "id": text,
                "issued_at": moment(token.issued),
                "expires": moment(token.expires),
                "tenant": tenant,
                "audit_ids": [token.id],
            },
            "serviceCatalog": [
                {
                    "type": kind,
                    "name": name,
                    "endpoints": [
                        {
                            "id": name,
                            "region": REGION,
                            **dict.fromkeys(("publicURL", "internalURL", "adminURL"), url),
                        }
                    ],
                    "endpoints_links": [],
                }
                for kind, name, url in services(base, account)
            ],
            "user": user | {"roles": [{"name": role["name"]} for role in held], "roles_links": []},
            "metadata": {"is_admin": 0, "roles": [role["id"] for role in held]},
        }
    }


def versions(base: str) -> Mapping[str, dict[str, Any]]:
    """Return the description of each version of the protocol."""

    def one(number: str, name: str, status: str) -> dict[str, Any]:
        kind = f"application/vnd.openstack.identity-{name}+json"
        return {
            "id": number,
            "status": status,
            "updated": _UPDATED,
            "links": [{"rel": "self", "href": f"{base}/{name}/"}],
            "media-types": [{"base": "application/json", "type": kind}],
        }

    return {"v3": one("v3.14", "v3", "stable"), "v2.0": one("v2.0", "v2.0", "deprecated")}
