"""Signed requests between the services of one cluster: HMAC-SHA256 with the cluster's key.

The header is `v1:<milliseconds since the epoch>:<64 hex digits>`; the signature covers method, request target,
time and the part of the body that says what to do (a PUT's record header, other requests' whole JSON). Bytes of
object data are not covered: their footer is checked against accidents, not against an attacker on the wire.

The cluster may have several keys while one takes the place of another: the first one signs, all are accepted.

Fault model: anybody may reach the port. Without a key nobody can make a request that is obeyed, nor change
the meaning of one that was overheard. An overheard request can be repeated within the window of `max_skew_s`:
all writes are idempotent by their timestamps, so a repetition changes nothing, but may read what the
original read. Who can also listen on the network needs TLS or a network policy against them.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Sequence

from swiftlet.errors import Unauthorized


class ClusterKey:
    """Signs requests and checks signatures. Safe to share between threads."""

    def __init__(self, *keys: bytes, max_skew_s: float = 60.0, now_s: Callable[[], float] = time.time) -> None:
        """`keys` are the cluster's secrets; a request's time may differ from ours by `max_skew_s` either way."""
        self._max_skew_s = max_skew_s
        self._now_s = now_s
        self.use(keys)

    def use(self, keys: Sequence[bytes]) -> None:
        """Have these keys from now on: the first one signs, all are accepted."""
        if not keys or not all(keys):
            raise ValueError("there is no cluster key, or one is empty")
        # Replaced as a whole: other threads see the old keys or the new ones.
        self._keys = tuple(keys)

    def sign(self, method: str, target: str, meaning: bytes = b"") -> str:
        """The header's value for a request to `target` (path and query as sent) whose meaning is in `meaning`."""
        moment = str(int(self._now_s() * 1000))
        mac = _mac(self._keys[0], _signed(method, target, moment, meaning))
        return f"v1:{moment}:{mac}"

    def derive(self, context: bytes) -> tuple[bytes, ...]:
        """A secret of 32 bytes of each key for this use alone, the signing key's first."""
        return tuple(hmac.digest(key, b"v1 derived\n" + context, "sha256") for key in self._keys)

    def check(self, signature: str | None, method: str, target: str, meaning: bytes = b"") -> None:
        """Unauthorized unless `signature` was made with one of the keys, for this request, about now."""
        if signature is None:
            raise Unauthorized("the request carries no cluster signature; give every service the same cluster key")
        version, _, rest = signature.partition(":")
        moment, _, mac = rest.partition(":")
        if version != "v1" or not (moment.isascii() and moment.isdigit() and len(moment) <= 15):
            raise Unauthorized("the cluster signature is malformed")
        given, signed = mac.encode("utf-8", "replace"), _signed(method, target, moment, meaning)
        # All keys are tried, whichever fits: how long it takes says nothing about them.
        if not sum([hmac.compare_digest(given, _mac(key, signed).encode()) for key in self._keys]):
            raise Unauthorized("the cluster signature does not match; give every service the same cluster key")
        skew_s = abs(int(moment) / 1000 - self._now_s())
        if skew_s > self._max_skew_s:
            raise Unauthorized(f"the request was signed {skew_s:.0f} s away from our time; check the clocks")


def _signed(method: str, target: str, moment: str, meaning: bytes) -> bytes:
    head = f"v1\n{method}\n{target}\n{moment}\n".encode("utf-8", "surrogatepass")
    return head + hashlib.sha256(meaning).digest()


def _mac(key: bytes, signed: bytes) -> str:
    return hmac.digest(key, signed, "sha256").hex()
