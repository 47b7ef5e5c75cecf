"""Signatures of container sync's requests, the same in both directions and in OpenStack Swift. Pure.

A signature covers the method, the path without its query, the timestamp and a nonce. It does not cover the body, nor
does anything remember nonces: who can read or change what goes over the wire is kept out by TLS alone. A request that
is sent again changes nothing, since its timestamp is that of the version it brings.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

SYNC_AUTH = "X-Container-Sync-Auth"
_NO_TIME = "0"
"""Signed in place of a missing X-Timestamp."""


@dataclass(frozen=True, slots=True)
class Signed:
    """The value of X-Container-Sync-Auth: `realm nonce signature`."""

    realm: str
    nonce: str
    signature: str

    @property
    def header(self) -> str:
        """Return the header's value."""
        return f"{self.realm} {self.nonce} {self.signature}"


def parse_signed(header: str) -> Signed | None:
    """Return the parts of a header; None unless there are three."""
    parts = header.split()
    return Signed(*parts) if len(parts) == 3 else None


def signature_of(method: str, path: str, timestamp: str | None, nonce: str, realm_key: str, user_key: str) -> str:
    """Return the signature of a request: `path` is percent-encoded, `timestamp` the value of X-Timestamp."""
    text = "\n".join((method, path, timestamp or _NO_TIME, nonce, user_key))
    return hmac.new(_bytes(realm_key), _bytes(text), hashlib.sha1).hexdigest()


def sign(method: str, path: str, timestamp: str | None, realm: str, realm_key: str, user_key: str) -> Signed:
    """Return a new signature of a request."""
    nonce = secrets.token_hex(16)
    return Signed(realm, nonce, signature_of(method, path, timestamp, nonce, realm_key, user_key))


def is_signed(
    signed: Signed, method: str, path: str, timestamp: str | None, realm_keys: Iterable[str], user_key: str
) -> bool:
    """Return whether one of the realm's keys has signed the request."""
    is_good = False
    for key in realm_keys:
        made = signature_of(method, path, timestamp, signed.nonce, key, user_key)
        is_good |= hmac.compare_digest(_bytes(signed.signature), _bytes(made))
    return is_good


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
