"""Identities, roles, and the decision whether an identity may do something."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from swiftlet.errors import Forbidden
from swiftlet.names import Path

READ_METHODS = frozenset({"GET", "HEAD"})
RESELLER_PREFIX = "AUTH_"
"""The prefix of the account's name in storage URLs, as in TempAuth."""


class Role(StrEnum):
    """A user's role; the one of a user's roles that allows most counts."""

    READER = "reader"
    """Reads everything in the own account."""
    USER = "user"
    """Reads and writes containers and objects of the own account."""
    ADMIN = "admin"
    """All of `user`, and the account's own metadata."""
    RESELLER_ADMIN = "reseller_admin"
    """Does everything in every account, and creates and deletes accounts."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A user of an account, as a valid token proves it. `account` is the storage account in the path."""

    account: str
    user: str
    roles: frozenset[Role]

    def __str__(self) -> str:
        """The name by which the user logs in, `account:user`."""
        return f"{self.account}:{self.user}"

    @property
    def tenant(self) -> str:
        """Return the account as its users log in with it and as ACLs name it: without the prefix of storage URLs."""
        return self.account.removeprefix(RESELLER_PREFIX)


def is_owner(identity: Identity, account: str) -> bool:
    """Return whether the user is an owner of the account, who sees and sets ACLs and signing keys."""
    if Role.RESELLER_ADMIN in identity.roles:
        return True
    return identity.account == account and Role.ADMIN in identity.roles


def authorize(identity: Identity, method: str, path: Path) -> None:
    """Raise Forbidden unless `identity` may do `method` on `path`; the message says what is missing."""
    if Role.RESELLER_ADMIN in identity.roles:
        return
    if identity.account != path.account:
        raise Forbidden(f"{identity} has no access to account {path.account}")
    if not identity.roles:
        raise Forbidden(f"{identity} has no role in account {path.account}, and no ACL grants access")
    if method in READ_METHODS:
        return
    if path.container is None:
        _authorize_account_write(identity, method)
    elif not identity.roles & {Role.USER, Role.ADMIN}:
        raise Forbidden(f"{identity} may only read: writing needs the role user or admin")


def _authorize_account_write(identity: Identity, method: str) -> None:
    if method in {"PUT", "DELETE"}:
        raise Forbidden(f"{method} of an account needs the role reseller_admin")
    if Role.ADMIN not in identity.roles:
        raise Forbidden(f"{method} of an account needs the role admin")
