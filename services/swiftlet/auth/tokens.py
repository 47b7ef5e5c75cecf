"""Signed, self-contained tokens: any proxy checks one without asking anyone.

`AUTH_tk` + base64url(payload) + "." + base64url(HMAC-SHA256(key, payload)). The payload is a JSON list: key id,
account, user, roles, expiry in seconds since the epoch. Several keys may be valid at once (rotation): the first
one signs, all of them verify.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Sequence

from swiftlet.auth.identity import Identity, Role
from swiftlet.errors import Unauthorized

PREFIX = "AUTH_tk"
MAX_TOKEN = 2048
"""Characters; longer ones are refused unread."""


def derive_key(cluster_key: bytes, purpose: str) -> bytes:
    """A key for one purpose from the cluster's secret: HMAC-SHA256(cluster key, purpose), 32 bytes."""
    return hmac.new(cluster_key, purpose.encode(), hashlib.sha256).digest()


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


class Tokens:
    """Issues and checks tokens; `clock` gives seconds since the epoch."""

    def __init__(self, keys: Sequence[bytes], life_s: int = 86_400, clock: Callable[[], float] = time.time) -> None:
        """`keys` as in `use`."""
        self._life_s = life_s
        self._clock = clock
        self.use(keys)

    def use(self, keys: Sequence[bytes]) -> None:
        """Have these keys from now on: the signing one first, then those still accepted; each of 16 bytes or more."""
        if not keys or any(len(key) < 16 for key in keys):
            raise ValueError("token keys: at least one, each of 16 bytes or more")
        # Replaced as a whole: other threads see the old keys or the new ones.
        self._keys = {_encode(hashlib.sha256(b"id" + key).digest()[:6]): key for key in keys}

    def issue(self, identity: Identity) -> tuple[str, int]:
        """A token and the seconds it is good for."""
        expires = int(self._clock()) + self._life_s
        key_id, key = next(iter(self._keys.items()))
        fields = [key_id, identity.account, identity.user, sorted(identity.roles), expires]
        payload = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
        signature = hmac.new(key, payload, hashlib.sha256).digest()
        return f"{PREFIX}{_encode(payload)}.{_encode(signature)}", self._life_s

    def check(self, token: str) -> Identity:
        """Whose token it is; Unauthorized when it is malformed, not ours or expired."""
        payload, signature = self._split(token)
        try:
            key_id, account, user, roles, expires = json.loads(payload)
            key = self._keys[key_id]
        except (ValueError, KeyError, TypeError) as error:
            raise Unauthorized("the token was not issued here; ask for a new one at /auth/v1.0") from error
        if not hmac.compare_digest(hmac.new(key, payload, hashlib.sha256).digest(), signature):
            raise Unauthorized("the token's signature is wrong; ask for a new one at /auth/v1.0")
        if self._clock() >= expires:
            raise Unauthorized("the token has expired; ask for a new one at /auth/v1.0")
        return Identity(account, user, frozenset(Role(role) for role in roles))

    @staticmethod
    def _split(token: str) -> tuple[bytes, bytes]:
        body, point, signature = token.removeprefix(PREFIX).partition(".")
        if len(token) > MAX_TOKEN or not token.startswith(PREFIX) or not point:
            raise Unauthorized("the token is malformed; ask for a new one at /auth/v1.0")
        try:
            return _decode(body), _decode(signature)
        except (binascii.Error, ValueError) as error:
            raise Unauthorized("the token is malformed; ask for a new one at /auth/v1.0") from error
