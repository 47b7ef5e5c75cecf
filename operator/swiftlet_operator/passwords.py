"""New secrets, and the hashes of users' keys.

A hash is salted, so that of an unchanged key must be kept, or the users file would change with every reconcile. A key
that matched is remembered, because the check costs as much as a login.
"""

from __future__ import annotations

import hashlib
import secrets

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

TOKEN_BYTES = 32
MAX_REMEMBERED = 10_000

# The services decide the cost of a login; a hash itself has the parameters for its verification.
_hasher = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)


class Passwords:
    """Makes tokens and hashes of secrets, as `swiftlet_operator.plan.Fresh` requires."""

    def __init__(self) -> None:
        self._fitting: dict[tuple[str, bytes], None] = {}

    def token(self) -> str:
        """Return 32 random bytes as URL-safe text."""
        return secrets.token_urlsafe(TOKEN_BYTES)

    def hashed(self, secret: str, old: str | None) -> str:
        """Return the argon2id hash of a secret: the old one as long as it matches."""
        digest = hashlib.sha256(secret.encode()).digest()
        if old is not None and ((old, digest) in self._fitting or _fits(old, secret)):
            self._remember(old, digest)
            return old
        made = _hasher.hash(secret)
        self._remember(made, digest)
        return made

    def _remember(self, made: str, digest: bytes) -> None:
        self._fitting[made, digest] = None
        while len(self._fitting) > MAX_REMEMBERED:
            del self._fitting[next(iter(self._fitting))]


def _fits(old: str, secret: str) -> bool:
    try:
        return _hasher.verify(old, secret)
    except (VerificationError, InvalidHashError):
        return False
