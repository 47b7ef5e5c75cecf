"""Signed, self-contained tokens: any proxy checks one without asking anyone.

`AUTH_tk` + base64url(payload) + "." + base64url(HMAC-SHA256(key, payload)). The payload is a JSON list: key id,
account, user, roles, expiry and time of issue in seconds since the epoch, the token's own id, and the generation of the
user's secret and roles. Several keys may be valid at once (rotation): the first one signs, all of them verify.

The token itself shows that it is signed and has not expired. Whether its user is still the same and whether it was
revoked is checked by `conditions`, from what a process remembers anyway.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from swiftlet.auth.identity import Identity, Role
from swiftlet.errors import Unauthorized

PREFIX = "AUTH_tk"
MAX_TOKEN = 2048
"""The largest number of characters of a token; longer ones are refused without parsing them."""
_FIELDS = 8
"""The number of fields of a payload."""
MAX_VERIFIED = 1024
"""The largest number of tokens whose signature is remembered as good, 2 MB at most; the oldest one is removed first."""


@dataclass(frozen=True, slots=True)
class Token:
    """The content of a token; times are in whole seconds since the epoch."""

    identity: Identity
    expires: int
    issued: int
    id: str
    """The 22 characters that stand for the token where the token itself must not be shown."""
    generation: str
    """The generation of the user's secret and roles at the login; see `swiftlet.auth.users.User`."""


Condition = Callable[[Token], None]
"""A function that raises Unauthorized for a token that is no longer good."""


def derive_key(cluster_key: bytes, purpose: str) -> bytes:
    """Return a key for one purpose, derived from the cluster's secret: HMAC-SHA256(cluster key, purpose), 32 bytes."""
    return hmac.new(cluster_key, purpose.encode(), hashlib.sha256).digest()


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


class Tokens:
    """Issues and checks tokens; `clock` returns seconds since the epoch."""

    def __init__(
        self,
        keys: Sequence[bytes],
        life_s: int = 86_400,
        clock: Callable[[], float] = time.time,
        conditions: Sequence[Condition] = (),
    ) -> None:
        """`keys` as in `use`; `conditions` are further checks that a valid token has to pass."""
        self._life_s = life_s
        self._clock = clock
        self._conditions = tuple(conditions)
        self.use(keys)

    @property
    def life_s(self) -> int:
        """The longest life of a token in seconds."""
        return self._life_s

    def use(self, keys: Sequence[bytes]) -> None:
        """Use these keys from now on, each of 16 bytes or more: the first one signs, all are accepted."""
        if not keys or any(len(key) < 16 for key in keys):
            raise ValueError("token keys: at least one key is needed, and each must have 16 bytes or more")
        # All keys are replaced in one step: other threads see the old keys or the new ones.
        self._keys = {_encode(hashlib.sha256(b"id" + key).digest()[:6]): key for key in keys}
        self._verified: dict[str, Token] = {}

    def issue(self, identity: Identity, generation: str = "") -> tuple[str, int]:
        """Return a token and the number of seconds for which it is valid."""
        return self.text(self.fresh(identity, generation)), self._life_s

    def fresh(self, identity: Identity, generation: str, expires: int | None = None) -> Token:
        """Return the content of a new token; a token that was obtained by another one expires with it."""
        now = int(self._clock())
        ends = now + self._life_s
        return Token(
            identity, ends if expires is None else min(ends, expires), now, _encode(os.urandom(16)), generation
        )

    def text(self, token: Token) -> str:
        """Return the token in the form that clients use."""
        identity = token.identity
        key_id, key = next(iter(self._keys.items()))
        about = [identity.account, identity.user, sorted(identity.roles), token.expires]
        fields = [key_id, *about, token.issued, token.id, token.generation]
        payload = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
        signature = hmac.new(key, payload, hashlib.sha256).digest()
        return f"{PREFIX}{_encode(payload)}.{_encode(signature)}"

    def check(self, token: str) -> Identity:
        """Return the identity in a token. Raises Unauthorized when it is malformed, not ours, expired, or no longer
        good.
        """
        return self.read(token).identity

    def read(self, token: str) -> Token:
        """Return the content of a valid token. Raises Unauthorized as `check` does."""
        found = self._signed(token)
        for condition in self._conditions:
            condition(found)
        return found

    def _signed(self, token: str) -> Token:
        # The cache is read before the keys, so that no token is remembered after the key that signed it.
        verified = self._verified
        found = verified.get(token)
        if found is None:
            found = self._verify(token)
            while len(verified) >= MAX_VERIFIED:
                verified.pop(next(iter(verified), token), None)
            verified[token] = found
        if self._clock() >= found.expires:
            raise Unauthorized("the token has expired; ask for a new one at /auth/v1.0")
        return found

    def _verify(self, token: str) -> Token:
        """Return the content of a token that one of the keys signed, expired or not."""
        payload, signature = self._split(token)
        # The payload is not parsed before the signature was verified.
        macs = [hmac.digest(key, payload, "sha256") for key in self._keys.values()]
        if not any(hmac.compare_digest(mac, signature) for mac in macs):
            raise Unauthorized("the token was not issued here; ask for a new one at /auth/v1.0")
        fields = json.loads(payload)
        if not isinstance(fields, list) or len(fields) != _FIELDS:
            raise Unauthorized(f"the token does not have {_FIELDS} fields; ask for a new one at /auth/v1.0")
        _, account, user, roles, expires, issued, id, generation = fields
        return Token(Identity(account, user, frozenset(Role(role) for role in roles)), expires, issued, id, generation)

    @staticmethod
    def _split(token: str) -> tuple[bytes, bytes]:
        body, point, signature = token.removeprefix(PREFIX).partition(".")
        if len(token) > MAX_TOKEN or not token.startswith(PREFIX) or not point:
            raise Unauthorized("the token is malformed; ask for a new one at /auth/v1.0")
        try:
            return _decode(body), _decode(signature)
        except (binascii.Error, ValueError) as error:
            raise Unauthorized("the token is malformed; ask for a new one at /auth/v1.0") from error
