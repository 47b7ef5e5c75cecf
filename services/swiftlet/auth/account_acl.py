"""Account ACLs: the JSON of X-Account-Access-Control, and the level of access that it gives to users of other accounts.

`{"admin": [...], "read-write": [...], "read-only": [...]}` with users as in container ACLs (`ACCOUNT`, `ACCOUNT:USER`).
https://docs.openstack.org/swift/latest/overview_acl.html#account-acls
"""

from __future__ import annotations

import json
from enum import IntEnum

from swiftlet.auth.acl import InvalidAcl, names_of
from swiftlet.auth.identity import READ_METHODS, Identity
from swiftlet.names import Path

ACCOUNT_ACL = "X-Account-Access-Control"


class Level(IntEnum):
    """The level of access that an account ACL gives; each includes those below it."""

    NONE = 0
    READ_ONLY = 1
    """Read everything but privileged headers."""
    READ_WRITE = 2
    """Also write containers and objects, but not the account itself."""
    ADMIN = 3
    """Do everything that the account's own admin may do."""


_LEVELS = {"admin": Level.ADMIN, "read-write": Level.READ_WRITE, "read-only": Level.READ_ONLY}


def parse_account_acl(text: str) -> dict[Level, frozenset[str]]:
    """Return the users by level. Raises InvalidAcl, with TempAuth's message, for anything else."""
    try:
        document = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise InvalidAcl(f"Syntax error in input ({text[:128]!r})") from error
    if not isinstance(document, dict):
        raise InvalidAcl(f"Syntax error in input ({text[:128]!r})")
    levels: dict[Level, frozenset[str]] = {}
    for key, users in document.items():
        if key not in _LEVELS:
            raise InvalidAcl(f"Key {json.dumps(key)} not recognized")
        if not isinstance(users, list):
            raise InvalidAcl(f"Value for key {json.dumps(key)} must be a list")
        if not all(isinstance(user, str) for user in users):
            raise InvalidAcl(f"Elements of {json.dumps(key)} list must be strings")
        levels[_LEVELS[key]] = frozenset(users)
    return levels


def clean_account_acl(text: str) -> str:
    """Return the ACL in canonical form: ASCII, keys sorted, no spaces; "" if it gives access to nobody. Raises
    InvalidAcl.
    """
    names = {level: name for name, level in _LEVELS.items()}
    document = {names[level]: sorted(users) for level, users in parse_account_acl(text).items() if users}
    return json.dumps(document, separators=(",", ":"), sort_keys=True) if document else ""


def level_of(identity: Identity, text: str) -> Level:
    """Return the highest level that an ACL gives this user; None when there is none, or when the ACL can't be read."""
    try:
        levels = parse_account_acl(text)
    except InvalidAcl:
        return Level.NONE
    names = frozenset(names_of(identity))
    return max((level for level, users in levels.items() if not users.isdisjoint(names)), default=Level.NONE)


def level_needed(method: str, path: Path) -> Level | None:
    """Return the lowest level that allows a request; None when no ACL does.

    Only reseller admins may create and delete accounts.
    """
    if method in READ_METHODS:
        return Level.READ_ONLY
    if path.container is not None:
        return Level.READ_WRITE
    return None if method in {"PUT", "DELETE"} else Level.ADMIN
