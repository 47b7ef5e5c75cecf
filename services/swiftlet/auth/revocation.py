"""Revoked tokens: those that a process knows, and their names in the list that all processes share.

A revocation is kept until its token would have expired anyway. A user has a bounded number of them: when there are
more, one entry revokes all tokens that were issued to that user so far.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from swiftlet.auth.tokens import Token
from swiftlet.errors import Unauthorized

MAX_PER_USER = 100
"""The largest number of single tokens of one user that are revoked."""
_ALL = "*"


@dataclass(frozen=True, slots=True)
class Revocation:
    """The revocation of one token, or with `id` None of all of a user's that were issued up to `before`.

    Times are in seconds since the epoch.
    """

    account: str
    user: str
    expires: int
    id: str | None
    before: int = 0

    @property
    def name(self) -> str:
        """Return the name of its entry in the list: account, user, expiry, and what is revoked. Users' names have no
        slash.
        """
        what = self.id if self.id is not None else f"{_ALL}{self.before}"
        return f"{self.account}/{self.user}/{self.expires}/{what}"


def parse_revocation(name: str) -> Revocation | None:
    """Return the revocation with this name; None when it is not one."""
    parts = name.split("/")
    if len(parts) != 4 or not _number(parts[2]) or not parts[3]:
        return None
    account, user, expires, what = parts
    if not what.startswith(_ALL):
        return Revocation(account, user, int(expires), what)
    before = what.removeprefix(_ALL)
    return Revocation(account, user, int(expires), None, int(before)) if _number(before) else None


def _number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 12


class Revoked:
    """The revocations that a process knows."""

    def __init__(self) -> None:
        """Start without revoked tokens."""
        self._ids: frozenset[str] = frozenset()
        self._before: dict[tuple[str, str], int] = {}
        self._known: dict[str, Revocation] = {}

    def use(self, revocations: Iterable[Revocation]) -> None:
        """Replace all known revocations by these."""
        self._known = {one.name: one for one in revocations}
        self._ids = frozenset(one.id for one in self._known.values() if one.id is not None)
        self._before = {}
        for one in self._known.values():
            if one.id is None:
                who = one.account, one.user
                self._before[who] = max(one.before, self._before.get(who, 0))

    def add(self, revocation: Revocation) -> None:
        self.use([*self._known.values(), revocation])

    def of(self, account: str, user: str) -> list[Revocation]:
        """Return the revocations of one user."""
        return [one for one in self._known.values() if (one.account, one.user) == (account, user)]

    def __len__(self) -> int:
        return len(self._known)

    def check(self, token: Token) -> None:
        """Raise Unauthorized for a token that was revoked."""
        who = token.identity.account, token.identity.user
        if token.id in self._ids or token.issued <= self._before.get(who, -1):
            raise Unauthorized("the token was revoked; log in again")

    def revoking(self, token: Token, now: int, life_s: int) -> Revocation:
        """Return the revocation of a token; a token that is issued at `now` lives for at most `life_s` seconds."""
        who = token.identity.account, token.identity.user
        if len(self.of(*who)) < MAX_PER_USER:
            return Revocation(*who, token.expires, token.id)
        return Revocation(*who, now + life_s, None, now)

    def needless(self, beside: Revocation, now: int) -> list[Revocation]:
        """Return the known revocations that may be removed: expired ones, and the user's others when `beside` revokes
        all.
        """
        covered = self.of(beside.account, beside.user) if beside.id is None else []
        expired = [one for one in self._known.values() if one.expires <= now]
        return [one for one in dict.fromkeys([*covered, *expired]) if one.name != beside.name]

    def drop(self, revocations: Iterable[Revocation]) -> None:
        gone = set(revocations)
        self.use([one for one in self._known.values() if one not in gone])
