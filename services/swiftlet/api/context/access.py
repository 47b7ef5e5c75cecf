"""Authorization: the decision for each path that a request affects: its own, a copy's destination and a segment's.

A user's role in its own account decides without asking any server. Only when it does not allow the request, the
container's ACL is checked, which is at most a second old, and then the account's ACL. A container that does not exist
has no ACL, so strangers learn nothing of what exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from swiftlet.api.context.account_cache import AccountCache
from swiftlet.api.context.container_cache import ContainerCache
from swiftlet.auth.account_acl import ACCOUNT_ACL, Level, level_needed, level_of
from swiftlet.auth.acl import CONTAINER_READ, CONTAINER_WRITE, LISTINGS, Acl, parse_acl
from swiftlet.auth.identity import READ_METHODS, Identity, authorize, is_owner
from swiftlet.errors import Forbidden, NotFound, Unauthorized
from swiftlet.names import Path

_parsed = lru_cache(maxsize=256)(parse_acl)


class Access(Protocol):
    """The rights of a request's sender."""

    async def require(self, method: str, path: Path) -> bool:
        """Return whether the sender is an owner there. Raises Unauthorized or Forbidden if `method` on `path` is not
        allowed.
        """
        ...


@dataclass(frozen=True, slots=True)
class TokenAccess:
    """The rights of a user with a valid token, or of anybody (None)."""

    containers: ContainerCache
    accounts: AccountCache
    identity: Identity | None
    referer: str | None

    async def require(self, method: str, path: Path) -> bool:
        """Check the role, the container's ACL and the account's: 401 for requests without a token, 403 for others."""
        refused: Unauthorized | Forbidden = Unauthorized("send X-Auth-Token; tokens are issued at /auth/v1.0")
        if self.identity is not None:
            try:
                authorize(self.identity, method, path)
            except Forbidden as error:
                refused = error
            else:
                return is_owner(self.identity, path.account)
        if await self._container_admits(method, path):
            return False
        needed, level = level_needed(method, path), await self._level(path.account)
        if needed is not None and level >= needed:
            return level is Level.ADMIN
        raise refused

    async def _container_admits(self, method: str, path: Path) -> bool:
        reading = method in READ_METHODS
        if path.container is None or not (reading or path.obj is not None):
            return False
        try:
            container = await self.containers.fresh(path.account, path.container)
        except NotFound:
            return False
        text = container.metadata.get(CONTAINER_READ if reading else CONTAINER_WRITE)
        if not text:
            return False
        acl: Acl = _parsed(text)
        listed = path.obj is not None or LISTINGS in acl.grantees
        return (listed and acl.admits_referrer(self.referer)) or acl.admits(self.identity)

    async def _level(self, account: str) -> Level:
        if self.identity is None:
            return Level.NONE
        text = (await self.accounts.fresh(account)).get(ACCOUNT_ACL)
        return level_of(self.identity, text) if text else Level.NONE


@dataclass(frozen=True, slots=True)
class SignedAccess:
    """The rights that a signature gives: to one account, or one container of it, never as an owner."""

    account: str
    container: str | None = None

    async def require(self, method: str, path: Path) -> bool:
        """Allow anything within the scope of the key that signed; 401 outside of it."""
        if path.account != self.account or path.container is None or self.container not in {None, path.container}:
            raise Unauthorized("the signature is not valid for this path")
        return False


_BROUGHT = frozenset({"HEAD", "PUT", "DELETE"})
"""What container sync does with an object."""


@dataclass(frozen=True, slots=True)
class SyncAccess:
    """The rights of another cluster's container sync: to list one container, and to bring it objects and deletions."""

    account: str
    container: str

    async def require(self, method: str, path: Path) -> bool:
        """Allow what container sync needs; 403 for anything else."""
        allowed = READ_METHODS if path.obj is None else _BROUGHT
        if (path.account, path.container) != (self.account, self.container) or method not in allowed:
            raise Forbidden(
                "container sync may only list its container, and look at, store and delete the objects in it"
            )
        return False
