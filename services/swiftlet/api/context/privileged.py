"""Headers that only owners see and set: ACLs, and the keys of temporary URLs, forms and synchronization.

Requests of others have them ignored, as in OpenStack Swift, and responses to others don't have them.
"""

from __future__ import annotations

from collections.abc import Mapping

from swiftlet.api.http.metadata import utf8_size
from swiftlet.api.http.problems import ApiError
from swiftlet.auth.account_acl import ACCOUNT_ACL, clean_account_acl
from swiftlet.auth.acl import CONTAINER_READ, CONTAINER_WRITE, InvalidAcl, clean_acl
from swiftlet.container_sync.realms import InvalidTarget, RealmsFile

ACCOUNT_KEYS = ("X-Account-Meta-Temp-Url-Key", "X-Account-Meta-Temp-Url-Key-2")
CONTAINER_KEYS = ("X-Container-Meta-Temp-Url-Key", "X-Container-Meta-Temp-Url-Key-2")
SYNC_KEY, SYNC_TO = "X-Container-Sync-Key", "X-Container-Sync-To"
PRIVILEGED = frozenset(
    {ACCOUNT_ACL, CONTAINER_READ, CONTAINER_WRITE, SYNC_KEY, SYNC_TO, *ACCOUNT_KEYS, *CONTAINER_KEYS}
)


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


def sync_headers(headers: Mapping[str, str], realms: RealmsFile) -> dict[str, str]:
    """Return what a request says of container sync: its key, and where the copy is; "" removes one.

    Raises 400 for a place in no cluster of the realms, 501 where there are none.
    """
    given = {}
    for name in (SYNC_KEY, SYNC_TO):
        if "X-Remove-" + name.removeprefix("X-") in headers:
            given[name] = ""
        elif name in headers:
            utf8_size(name, headers[name])
            given[name] = headers[name].strip()
    if given.get(SYNC_TO):
        if not realms.enabled:
            raise ApiError(501, f"{SYNC_TO} is not supported: this cluster has no realms for container sync")
        try:
            realms.realms.target(given[SYNC_TO])
        except InvalidTarget as error:
            raise ApiError(400, str(error)) from error
    return given


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
