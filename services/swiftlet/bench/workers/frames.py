"""What a coordinator and a worker send each other: frames of JSON that only who has the token can make or change.

A frame is its length in 4 bytes, big-endian, and so many bytes. The first three are plain and short: both sides give a
nonce, and prove by HMAC-SHA256 over both nonces that they have the token, which is never sent. A key for the session
follows from it, and each later frame begins with an HMAC over its direction, its number and its content: nothing can be
changed, left out, repeated or answered by somebody else. Nothing is secret: no credentials of a store are sent.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from typing import Any

from swiftlet.bench.errors import BenchError

VERSION = 1
MAX_GREETING_BYTES = 4096
"""The largest frame before both sides have proved themselves."""
MAX_FRAME_BYTES = 16 << 20
"""The largest frame between sides that have proved themselves: a step's histograms take some megabytes at most."""
LENGTH_BYTES = 4
MIN_TOKEN_CHARACTERS = 16
_MAC_BYTES = 32
_NONCE_BYTES = 16

Message = dict[str, Any]


def new_nonce() -> str:
    """Something that was never there before."""
    return secrets.token_hex(_NONCE_BYTES)


def proof(token: str, side: str, coordinators: str, workers: str) -> str:
    """What a side shows to prove that it has the token, by the nonces of both."""
    return hmac.new(token.encode(), f"{side}|{coordinators}|{workers}".encode(), hashlib.sha256).hexdigest()


def is_proof(given: object, token: str, side: str, coordinators: str, workers: str) -> bool:
    """Whether it is what this side had to show."""
    return hmac.compare_digest(str(given).encode(), proof(token, side, coordinators, workers).encode())


def plain(message: Message) -> bytes:
    """A greeting as a frame."""
    return _framed(json.dumps(message).encode(), MAX_GREETING_BYTES)


def read_plain(body: bytes) -> Message:
    """The greeting in a frame's body; BenchError for anything else."""
    return _decoded(body)


class Session:
    """Makes and checks the frames of one side after the greetings."""

    def __init__(self, token: str, side: str, coordinators: str, workers: str) -> None:
        """The side is `worker` or `coordinator`; the nonces are those of the greetings."""
        self._key = bytes.fromhex(proof(token, "session", coordinators, workers))
        self._ours, self._theirs = (b"w", b"c") if side == "worker" else (b"c", b"w")
        self._sent = self._received = 0

    def frame(self, message: Message) -> bytes:
        """A message as the next frame; BenchError when it is too large."""
        body = json.dumps(message).encode()
        mac = self._mac(self._ours, self._sent, body)
        framed = _framed(mac + body, MAX_FRAME_BYTES)
        self._sent += 1
        return framed

    def read(self, body: bytes) -> Message:
        """The message in the body of the next frame; BenchError when it is not from the other side, or not the next."""
        mac, content = body[:_MAC_BYTES], body[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(self._theirs, self._received, content)):
            raise BenchError("a frame was changed on its way, or is of somebody else")
        self._received += 1
        return _decoded(content)

    def _mac(self, side: bytes, number: int, body: bytes) -> bytes:
        return hmac.new(self._key, side + number.to_bytes(8, "big") + body, hashlib.sha256).digest()


def length_of(head: bytes, most: int) -> int:
    """The length that a frame begins with; BenchError when it is more than that."""
    found = int.from_bytes(head, "big")
    if found > most:
        raise BenchError(f"a frame of {found:,} bytes is announced; {most:,} are the most")
    return found


def _framed(body: bytes, most: int) -> bytes:
    if len(body) > most:
        raise BenchError(f"a message of {len(body):,} bytes can't be sent; {most:,} are the most")
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def _decoded(body: bytes) -> Message:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BenchError("what arrived is no message of `swiftlet bench`") from error
    if not isinstance(found, dict) or not isinstance(found.get("kind"), str):
        raise BenchError("what arrived is no message of `swiftlet bench`")
    return found
