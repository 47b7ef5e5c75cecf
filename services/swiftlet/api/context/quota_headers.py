"""Headers that set quotas: who may send them, and their values.

https://docs.openstack.org/swift/latest/middleware.html#module-swift.common.middleware.account_quotas. Only reseller
admins may set an account's quota (403 for others). A container's may be set by whoever may change its metadata.
`X-Account-Meta-Quota` names a level of the quota file; a level that the file assigns takes precedence (409).
"""

from __future__ import annotations

from collections.abc import Mapping

from swiftlet.api.context.access import TokenAccess
from swiftlet.api.context.core import Call
from swiftlet.api.http.metadata import canonical
from swiftlet.api.http.problems import ApiError
from swiftlet.auth.identity import RESELLER_PREFIX, Role
from swiftlet.errors import Forbidden
from swiftlet.quota.bounds import (
    ACCOUNT_BYTES,
    ACCOUNT_COUNT,
    ACCOUNT_LEVEL,
    CONTAINER_BYTES,
    CONTAINER_COUNT,
    parse_limit,
)

_LIMITS = {ACCOUNT_COUNT: "count", **dict.fromkeys(ACCOUNT_BYTES, "bytes")}
_SYSTEM = ("X-Account-Quota-", "X-Remove-Account-Quota-")


def account_quota(call: Call, items: Mapping[str, str]) -> dict[str, str]:
    """Return what a request sets of its account's quota, "" to remove; 403 for all but reseller admins, 400, 409, 501.

    `items` are the request's metadata, of which the older headers are a part.
    """
    found = {name: value for name, value in items.items() if name == ACCOUNT_LEVEL or name in _LIMITS}
    found |= _system_headers(call.request.headers)
    if not found:
        return {}
    if not is_reseller_admin(call):
        raise Forbidden(f"{', '.join(sorted(found))}: only a reseller admin can set the quota of an account")
    for name, value in found.items():
        if name == ACCOUNT_LEVEL:
            _check_level(call, value)
        elif name not in _LIMITS:
            raise ApiError(
                501, f"{name} is not supported: the quota of an account applies to all storage policies together"
            )
        else:
            _check_limit(name, value, _LIMITS[name])
    return found


def check_container_quota(items: Mapping[str, str]) -> None:
    """Raise 400 unless the quotas among a container's new metadata are numbers."""
    for name, what in ((CONTAINER_BYTES, "bytes"), (CONTAINER_COUNT, "count")):
        _check_limit(name, items.get(name, ""), what)


def is_reseller_admin(call: Call) -> bool:
    """Return whether the sender's token is a reseller admin's."""
    identity = call.access.identity if isinstance(call.access, TokenAccess) else None
    return identity is not None and Role.RESELLER_ADMIN in identity.roles


def _system_headers(headers: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name, value in headers.items():
        full = canonical(name)
        if full.startswith(_SYSTEM):
            removes = full.startswith("X-Remove-")
            found["X-" + full.removeprefix("X-Remove-") if removes else full] = "" if removes else value.strip()
    return found


def _check_limit(name: str, value: str, what: str) -> None:
    if value and parse_limit(value) is None:
        raise ApiError(
            400, f"Invalid {what} quota. {name} is {value[:64]!r}; send a number, or an empty value to remove the quota"
        )


def _check_level(call: Call, level: str) -> None:
    quotas = call.api.quotas.quotas
    tenant = call.path.account.removeprefix(RESELLER_PREFIX)
    if level and level not in quotas.levels:
        known = ", ".join(sorted(quotas.levels))
        raise ApiError(400, f"{ACCOUNT_LEVEL}: there is no level {level[:64]!r}; the levels here are: {known}")
    if level and quotas.assignments.get(tenant, level) != level:
        reason = f"the cluster's configuration gives account {tenant!r} the level {quotas.assignments[tenant]!r}"
        raise ApiError(409, f"{ACCOUNT_LEVEL}: {reason}; change it there")
