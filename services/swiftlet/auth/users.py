"""Users and their secrets, from a YAML file.

    - account: test                 # the account part of X-Auth-User
      user: tester
      roles: [admin]                # admin | user | reader | reseller_admin
      secret_hash: $argon2id$...    # made by `hash_secret`

The storage account is `AUTH_` + account. The file is read again when it changes; a file that can't be read or
has a mistake leaves the last good users in force. Secrets are checked with argon2, which takes its time by
design: callers run `check` outside the event loop. An unknown user costs as much time as a wrong secret.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from swiftlet.auth.identity import RESELLER_PREFIX, Identity, Role
from swiftlet.auth.tokens import Token
from swiftlet.documents import read_document
from swiftlet.errors import SettingsError, Unauthorized
from swiftlet.watched_file import WatchedFile

# argon2id at the lower of the cost points that RFC 9106 recommends for little memory: a login costs tens of
# milliseconds of CPU and 19 MiB, and its token then lasts a day.
_hasher = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)


def hash_secret(secret: str) -> str:
    """Return the argon2id hash of a secret, for the users file."""
    return _hasher.hash(secret)


_DUMMY = hash_secret("no such user")
MAX_GENERATIONS = 1024
"""Users whose generation is remembered, as every check of a token compares it."""


@dataclass(frozen=True, slots=True)
class User:
    """One entry of the users file."""

    account: str
    user: str
    roles: frozenset[Role]
    secret_hash: str

    @property
    def identity(self) -> Identity:
        """Return the identity that tokens have for this user."""
        return Identity(RESELLER_PREFIX + self.account, self.user, self.roles)

    @property
    def generation(self) -> str:
        """A text that changes with the secret and the roles; tokens carry it, so that they end with the login that it
        describes.
        """
        return _generation(self.secret_hash, self.roles)


@lru_cache(maxsize=MAX_GENERATIONS)
def _generation(secret_hash: str, roles: frozenset[Role]) -> str:
    text = "\0".join([secret_hash, *sorted(roles)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_NOTHING = ("", b"")
_FIELDS = {"account", "user", "roles", "secret_hash"}


def _parse_user(entry: Any, where: str) -> User:
    if not isinstance(entry, dict):
        raise SettingsError(f"{where}: expected a mapping with account, user, roles, secret_hash")
    unknown = set(entry) - _FIELDS
    missing = _FIELDS - set(entry)
    if unknown or missing:
        wrong = [f"unknown field {name!r}" for name in sorted(map(str, unknown))]
        wrong += [f"missing field {name!r}" for name in sorted(missing)]
        raise SettingsError(f"{where}: {', '.join(wrong)}")
    for name in ("account", "user", "secret_hash"):
        if not isinstance(entry[name], str) or not entry[name]:
            raise SettingsError(f"{where}: {name} must be a non-empty string")
    if any(c in entry["account"] + entry["user"] for c in ":/"):
        raise SettingsError(f"{where}: account and user can't contain ':' or '/'")
    known = ", ".join(Role)
    if not isinstance(entry["roles"], list) or not all(role in list(Role) for role in entry["roles"]):
        raise SettingsError(f"{where}: roles must be a list of {known}")
    return User(entry["account"], entry["user"], frozenset(Role(r) for r in entry["roles"]), entry["secret_hash"])


def parse_users(text: str, where: str) -> dict[tuple[str, str], User]:
    """Return the users by (account, user). Raises SettingsError, which names the entry and the field."""
    try:
        entries = read_document(text) or []
    except yaml.YAMLError as error:
        raise SettingsError(f"{where}: the file is not valid YAML: {error}") from error
    if not isinstance(entries, list):
        raise SettingsError(f"{where}: the file must hold a list of users")
    users: dict[tuple[str, str], User] = {}
    for number, entry in enumerate(entries, 1):
        user = _parse_user(entry, f"{where}, user {number}")
        if (user.account, user.user) in users:
            raise SettingsError(f"{where}, user {number}: {user.account}:{user.user} is listed twice")
        users[user.account, user.user] = user
    return users


class Users:
    """The users file, reloaded when it changes."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the file. Raises SettingsError when it can't be used."""
        self._path = Path(path)
        self._file = WatchedFile(self._path, "users file")
        self._users: dict[tuple[str, str], User] = {}
        self._found_right: dict[tuple[str, str], tuple[str, bytes]] = {}
        self._process_key = os.urandom(32)
        self.version = ""
        """Eight hex digits that identify the content of the file in use."""
        self.reload()

    def reload(self) -> bool:
        """Read the file if it changed; return whether it had. SettingsError leaves the last good users in force."""
        return self._file.reload(self._use)

    def _use(self, content: bytes, text: str) -> None:
        self._users = parse_users(text, str(self._path))
        self._found_right = {who: found for who, found in self._found_right.items() if who in self._users}
        self.version = hashlib.sha256(content).hexdigest()[:8]

    def knows(self, login: str) -> bool:
        """Return whether there is a user `account:user`; answers to clients must not depend on it."""
        account, _, name = login.partition(":")
        return (account, name) in self._users

    def only_account_of(self, name: str) -> str | None:
        """Return the account of the only user of that name; None when there is no such user, or more than one."""
        accounts = [account for account, user in self._users if user == name]
        return accounts[0] if len(accounts) == 1 else None

    def still(self, token: Token) -> None:
        """Raise Unauthorized when a token's user is gone, or has another secret or other roles than at the login."""
        user = self._users.get((token.identity.tenant, token.identity.user))
        if user is None or not hmac.compare_digest(user.generation.encode(), token.generation.encode()):
            raise Unauthorized("the token's user has changed since it was given out; log in again")

    def check(self, login: str, secret: str) -> Identity:
        """Return the identity of `account:user` with this secret. Raises Unauthorized. Blocks for the time
        of the hash.
        """
        return self.login(login, secret).identity

    def login(self, login: str, secret: str) -> User:
        """Return the user `account:user` with this secret. Raises Unauthorized. Blocks for the time of the hash."""
        account, _, name = login.partition(":")
        user = self._users.get((account, name))
        try:
            _hasher.verify(user.secret_hash if user else _DUMMY, secret)
        except (VerificationError, InvalidHashError) as error:
            raise Unauthorized("unknown user or wrong key") from error
        if user is None:
            raise Unauthorized("unknown user or wrong key")
        self._found_right[account, name] = user.secret_hash, self._digest(secret)
        return user

    def recognised(self, login: str, secret: str) -> User | None:
        """Return the user if this process has found this secret right before and it still is; takes microseconds.

        The process remembers a digest with a key of its own, which is stored nowhere.
        """
        account, _, name = login.partition(":")
        user, (found_for, digest) = self._users.get((account, name)), self._found_right.get((account, name), _NOTHING)
        same = hmac.compare_digest(digest, self._digest(secret))
        if user is None or not same or not hmac.compare_digest(user.secret_hash.encode(), found_for.encode()):
            return None
        return user

    def _digest(self, secret: str) -> bytes:
        return hmac.digest(self._process_key, secret.encode("utf-8", "surrogatepass"), "sha256")
