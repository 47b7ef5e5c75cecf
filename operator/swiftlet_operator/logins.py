"""Which parts of a StorageUser's request are granted: the login itself, its account, its roles.

Anybody who may create StorageUsers in a namespace chooses their spec. So the StorageCluster, which fewer people may
edit, limits the choice (`spec.auth`). A login belongs to the StorageUser that had it first: if the order of names
decided, a newcomer could take over somebody else's login with a key of its own.
"""

from __future__ import annotations

from typing import NamedTuple

from swiftlet.crd import Resource, StorageUserSpec
from swiftlet_operator.manifests import USER
from swiftlet_operator.world import World

TWICE = "UserTwice"
RESERVED = "AccountReserved"
NOT_ALLOWED = "RoleNotAllowed"
NOT_SERVED = "NotServedYet"
SILENT = "ProxiesSilent"
"""For these two a StorageUser is not ready although it has its login: proxies have yet to say that they take it."""


class Refusal(NamedTuple):
    """Why a StorageUser does not get what it asks for, and what to do about it."""

    reason: str
    message: str
    is_so: bool


def refusals(world: World, user: Resource[StorageUserSpec]) -> tuple[Refusal, ...]:
    """Return all reasons against a StorageUser, in the order in which they are reported."""
    spec, auth, cluster = user.spec, world.cluster.spec.auth, world.cluster.meta.name
    holder = _holder(world, spec.login)
    beyond = [role for role in spec.roles if role not in auth.roles_for(spec.account, spec.user)]
    roles = f"role {', '.join(beyond)} is" if len(beyond) == 1 else f"roles {', '.join(beyond)} are"
    return (
        Refusal(
            TWICE,
            f"StorageUser {holder} is {spec.login} already; change account or user, or delete one",
            holder != user.meta.name,
        ),
        Refusal(
            RESERVED,
            f"account {spec.account} is in spec.auth.reservedAccounts of StorageCluster {cluster}: name {spec.login} "
            "in its spec.auth.users, or delete this StorageUser and make one of another account",
            not auth.may_use(spec.account, spec.user),
        ),
        Refusal(
            NOT_ALLOWED,
            f"{roles} not in spec.auth.allowedRoles of StorageCluster {cluster}: take it out of spec.roles, or add it "
            "there, or for this login alone to spec.auth.users; until then a new user can't log in, and one that "
            "could has its other roles",
            bool(beyond),
        ),
    )


def roles_of(world: World, user: Resource[StorageUserSpec]) -> tuple[str, ...]:
    """Return the roles that a StorageUser asks for and may have."""
    allowed = world.cluster.spec.auth.roles_for(user.spec.account, user.spec.user)
    return tuple(role for role in user.spec.roles if role in allowed)


def _holder(world: World, login: str) -> str:
    """Return the StorageUser that owns the login: one that was accepted before, or else the oldest."""
    return min((one for one in world.users if one.spec.login == login), key=lambda one: _age(world, one)).meta.name


def _age(world: World, user: Resource[StorageUserSpec]) -> tuple[bool, str, str]:
    accepted = any(
        one.type == "Ready" and (one.status == "True" or one.reason in (NOT_SERVED, SILENT)) for one in user.conditions
    )
    live = world.own.get((USER.kind, user.meta.name)) or {}
    made = str((live.get("metadata") or {}).get("creationTimestamp") or "")
    return not accepted, made, user.meta.name
