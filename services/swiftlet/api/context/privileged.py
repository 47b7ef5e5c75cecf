"""Headers that only owners see and set: ACLs, and the keys of temporary URLs, forms and synchronization.

Requests of others have them ignored, as in OpenStack Swift, and responses to others don't have them.
"""

from __future__ import annotations

from collections.abc import Mapping

from swiftlet.api.http.metadata import utf8_size
from swiftlet.api.http.problems import ApiError
from swiftlet.auth.account_acl import ACCOUNT_ACL, clean_account_acl
from swiftlet.auth.acl import CONTAINER_READ, CONTAINER_WRITE, InvalidAcl, clean_acl

ACCOUNT_KEYS = ("X-Account-Meta-Temp-Url-Key", "X-Account-Meta-Temp-Url-Key-2")
CONTAINER_KEYS = ("X-Container-Meta-Temp-Url-Key", "X-Container-Meta-Temp-Url-Key-2")
SYNC_KEY = "X-Container-Sync-Key"
PRIVILEGED = frozenset({ACCOUNT_ACL, CONTAINER_READ, CONTAINER_WRITE, SYNC_KEY, *ACCOUNT_KEYS, *CONTAINER_KEYS})


def unprivileged(items: Mapping[str, str], owner: bool) -> dict[str, str]:
    """Return those headers, in canonical spelling, that the sender of a request may see or set."""
    return {name: value for name, value in items.items() if owner or name not in PRIVILEGED}


def container_acls(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the ACLs that a request sets, in canonical form; "" removes one. 400 for a malformed one."""
    acls: dict[str, str] = {}
    for name in (CONTAINER_READ, CONTAINER_WRITE):
        if "X-Remove-" + name.removeprefix("X-") in headers:
            acls[name] = ""
        elif name in headers:
            acls[name] = _cleaned(name, headers[name])
    return acls


def sync_key(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the sync key that a request sets; "" removes it.

    It is kept for clients that set keys before they know whether there is synchronization; nothing here uses it.
    """
    if "X-Remove-Container-Sync-Key" in headers:
        return {SYNC_KEY: ""}
    if SYNC_KEY not in headers:
        return {}
    utf8_size(SYNC_KEY, headers[SYNC_KEY])
    return {SYNC_KEY: headers[SYNC_KEY].strip()}


def _cleaned(name: str, text: str) -> str:
    utf8_size(name, text)
    try:
        return clean_acl(text, writing=name == CONTAINER_WRITE)
    except InvalidAcl as error:
        raise ApiError(400, str(error)) from error


def account_acl(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the ACL that a request sets for its account, in canonical form; 400 for a malformed one."""
    if "X-Remove-Account-Access-Control" in headers:
        return {ACCOUNT_ACL: ""}
    if ACCOUNT_ACL not in headers:
        return {}
    try:
        return {ACCOUNT_ACL: clean_account_acl(headers[ACCOUNT_ACL])}
    except InvalidAcl as error:
        raise ApiError(400, f"X-Account-Access-Control invalid: {error}") from error
