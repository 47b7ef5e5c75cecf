"""Signed requests between the services of one cluster: HMAC-SHA256 with the cluster's key.

The header is `v1:<milliseconds since the epoch>:<nonce>:<64 hex digits>`; the signature covers the method, the server's
address (`Host`), the request target, time and nonce, and the body. Requests for objects are not among these: they go
over the native transport, whose handshake proves the key.

The cluster may have several keys while one takes the place of another: the first one signs, all are accepted.

Fault model: anybody may reach the port. Without a key nobody can make a request that is obeyed, nor change
the meaning of one that was overheard, nor have it obeyed by another server: device names are alike on all of them. An
overheard request can be repeated at the same server within the window of `max_skew_s`: writes are idempotent by their
timestamps, so a repetition changes nothing, but may read what the original read. What a repetition would change is
obeyed once (`check_once`), also when the server was started anew in between. Who can also listen on the network needs
TLS or a network policy against them.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from swiftlet.errors import NodeBusy, Unauthorized
from swiftlet.formats import SAME_RELEASE, other_version

_VERSION = 1
"""The version of signatures; derived keys have one of their own."""
_OTHER_VERSION = re.compile(r"v[0-9]{1,5}", re.ASCII)
_NONCE_BYTES = 8
MAX_ONCE = 200_000
"""The largest number of signatures of requests that are obeyed once; each is kept for two minutes, some 40
MB in all.
"""


def _anybody(_host: str) -> bool:
    return True


class ClusterKey:
    """Signs requests and checks signatures. Safe to share between threads."""

    def __init__(self, *keys: bytes, max_skew_s: float = 60.0, now_s: Callable[[], float] = time.time) -> None:
        """`keys` are the cluster's secrets; a request's time may differ from ours by `max_skew_s` in either
        direction.
        """
        self._max_skew_s = max_skew_s
        self._now_s = now_s
        self._started_ms = int(now_s() * 1000)
        self._once = _Once()
        self._is_ours: Callable[[str], bool] = _anybody
        self.use(keys)

    def use(self, keys: Sequence[bytes]) -> None:
        """Use these keys from now on: the first one signs, all are accepted."""
        if not keys or not all(keys):
            raise ValueError("there is no cluster key, or one is empty")
        # All keys are replaced in one step: other threads see the old keys or the new ones.
        self._keys = tuple(keys)

    def answer_to(self, is_ours: Callable[[str], bool]) -> None:
        """From now on refuse requests whose `Host`, HOST:PORT, is not this server's; until then every host
        is accepted.
        """
        self._is_ours = is_ours

    def sign(self, method: str, host: str, target: str, meaning: bytes = b"") -> str:
        """Return the header's value for a request to `host` (HOST:PORT) and `target` (path and query as sent)."""
        moment = f"{int(self._now_s() * 1000)}:{secrets.token_hex(_NONCE_BYTES)}"
        mac = _mac(self._keys[0], _signed(method, host, target, moment, meaning))
        return f"v{_VERSION}:{moment}:{mac}"

    def derive(self, context: bytes) -> tuple[bytes, ...]:
        """Return for each key a derived secret of 32 bytes for one use, that of the signing key first."""
        return tuple(hmac.digest(key, b"v1 derived\n" + context, "sha256") for key in self._keys)

    def check(self, signature: str | None, method: str, host: str, target: str, meaning: bytes = b"") -> None:
        """Raise Unauthorized unless `signature` was made recently with one of the keys, for this request to this
        server.
        """
        self._check(signature, method, host, target, meaning)

    def check_once(self, signature: str | None, method: str, host: str, target: str, meaning: bytes = b"") -> None:
        """Check as `check` does, and raise Unauthorized when the request was made before, or may have been before this
        server started.

        NodeBusy when more such requests than can be remembered came within the window.
        """
        moment, mac = self._check(signature, method, host, target, meaning)
        if moment < self._started_ms:
            raise Unauthorized("the request was signed before this server was started; sign it again")
        self._once.add(mac, moment + 2 * self._max_skew_s * 1000, self._now_s() * 1000)

    def _check(self, signature: str | None, method: str, host: str, target: str, meaning: bytes) -> tuple[int, str]:
        """Return the time of the signature in milliseconds, and its MAC."""
        if signature is None:
            raise Unauthorized("the request carries no cluster signature; give every service the same cluster key")
        version, _, rest = signature.partition(":")
        moment, _, mac = rest.rpartition(":")
        made_ms, _, nonce = moment.partition(":")
        is_number = made_ms.isascii() and made_ms.isdigit() and len(made_ms) <= 15
        if _OTHER_VERSION.fullmatch(version) and version != f"v{_VERSION}":
            raise Unauthorized(other_version("the cluster signature", version[1:], _VERSION, SAME_RELEASE))
        if version != f"v{_VERSION}" or not is_number or len(nonce) != 2 * _NONCE_BYTES:
            raise Unauthorized("the cluster signature is malformed")
        given, signed = mac.encode("utf-8", "replace"), _signed(method, host, target, moment, meaning)
        # All keys are tried, whichever fits, so that the time it takes says nothing about them.
        if not sum([hmac.compare_digest(given, _mac(key, signed).encode()) for key in self._keys]):
            raise Unauthorized("the cluster signature does not match; give every service the same cluster key")
        if not self._is_ours(host):
            raise Unauthorized(
                f"the request was signed for {host}, which is not this server; if it is, set ring_host to its host"
            )
        skew_s = abs(int(made_ms) / 1000 - self._now_s())
        if skew_s > self._max_skew_s:
            raise Unauthorized(
                f"the request was signed {skew_s:.0f} s away from the time of this server; check the clocks"
            )
        return int(made_ms), mac


class _Once:
    """The signatures that were accepted once, each until it expires."""

    def __init__(self) -> None:
        self._until_ms: OrderedDict[str, float] = OrderedDict()

    def add(self, mac: str, until_ms: float, now_ms: float) -> None:
        """Remember a signature; Unauthorized when it is known, NodeBusy when there is no room."""
        while self._until_ms and next(iter(self._until_ms.values())) < now_ms:
            self._until_ms.popitem(last=False)
        if mac in self._until_ms:
            raise Unauthorized("the request was carried out before; sign it again to repeat it")
        if len(self._until_ms) >= MAX_ONCE:
            raise NodeBusy(
                f"{MAX_ONCE} requests that may be carried out only once came within minutes; try again later"
            )
        self._until_ms[mac] = until_ms


def authority(host: str, port: int) -> str:
    """Return HOST:PORT as it is written in a URL and in `Host`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _signed(method: str, host: str, target: str, moment: str, meaning: bytes) -> bytes:
    head = f"v{_VERSION}\n{method}\n{host}\n{target}\n{moment}\n".encode("utf-8", "surrogatepass")
    return head + hashlib.sha256(meaning).digest()


def _mac(key: bytes, signed: bytes) -> str:
    return hmac.digest(key, signed, "sha256").hex()
