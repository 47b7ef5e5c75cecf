"""The messages of a sync stream: many short requests of one end, and the answers of the other; pure.

A stream is a WebSocket. The server begins with a greeting; each further message is one of these, all numbers varints:

    greeting        version 1, nonce 16
    requests        (the first message: nonce 16), tag 16, length and name of a device, then each request:
                    kind 1, length, payload
    answers         each: what it answers, length, payload

Requests are numbered by their order on the stream, from 0, which costs no bytes. An answer says which one it answers
by the distance from the number behind the last one answered (0, -1, 1, -2, ... as 0, 1, 2, 3, ...), doubled, and one
more if it is a refusal: in order that is a zero. A refusal's payload is JSON, `[status, error]` as in HTTP's answers.

The tag is BLAKE2b, of 16 bytes, over the message's number and what stands behind the tag. Its key is derived from the
cluster's key, the path and both nonces: it is another one for each stream.

Fault model: anybody may connect and send anything. Without the cluster's key nobody makes a message that is taken;
what was overheard fits no other stream, no other place in its own stream, and no other path. An answer to what was not
asked, or was answered before, is garbage, which ends the stream at the end that asks. Answers bear no signature, as
nowhere here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from hmac import compare_digest

from swiftlet.errors import SwiftletError, Unauthorized
from swiftlet.formats import SAME_RELEASE, other_version
from swiftlet.transport.signing import ClusterKey
from swiftlet.transport.varints import Cursor, put_varint
from swiftlet.transport.wire import WireError, error_from_wire, error_to_wire, json_bytes

PATH = "/v1/sync"
"""The path at which an object server's stream begins, as a WebSocket."""
VERSION = 1
QUESTION = 1
"""Kind of a request: a question of a session, see `swiftlet.sync.session.messages`."""
READ = 2
"""Kind of a request: copies of many objects, see `swiftlet.sync.moving.copies_wire`."""
WRITE = 3
"""Kind of a request: take these copies."""
MAX_PAYLOAD = 1 << 20
"""The largest size in bytes of the payload of a request, and of an answer."""
SENT_BYTES = 64 * 1024
"""The size in bytes above which nothing is added to a message."""
MAX_MESSAGE = MAX_PAYLOAD + 4096
"""The largest size in bytes of a message."""
MAX_REQUESTS = 256
"""The largest number of requests in one message."""
MAX_UNANSWERED = 1024
"""Requests on one stream that were not answered yet; a server reads no more until there are fewer."""
MAX_UNANSWERED_BYTES = 8 << 20
"""The largest size in bytes of the payloads of unanswered requests on one stream."""
_NONCE = _TAG = 16
_MAX_NAME = 255
_MAX_DISTANCE = 1 << 40
_WHAT = "a sync stream's message"


@dataclass(frozen=True, slots=True)
class Request:
    """A request; the server defines its kinds."""

    kind: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Batch:
    """The requests of one message, about one device; `first` is the number of the first one."""

    device: str
    first: int
    requests: Sequence[Request]


Answer = bytes | SwiftletError
"""A payload, or the error in its place."""


def request_size(payload: bytes) -> int:
    """Return the approximate size in bytes of a request in a message."""
    return len(payload) + 5


def _secrets(key: ClusterKey | None, path: str, greeting: bytes, nonce: bytes) -> tuple[bytes, ...]:
    context = b"sync stream\n" + path.encode() + b"\n" + greeting + nonce
    return (b"",) if key is None else key.derive(context)


def _tag(secret: bytes, number: int, body: bytes) -> bytes:
    made = blake2b(number.to_bytes(8, "big"), digest_size=_TAG, key=secret)
    made.update(body)
    return made.digest()


class Asker:
    """The asking side of one stream."""

    def __init__(self, key: ClusterKey | None, path: str, greeting: bytes) -> None:
        """Raise WireError when the greeting is not one of this version."""
        if greeting and greeting[0] != VERSION:
            raise WireError(other_version("the server's greeting on a sync stream", greeting[0], VERSION, SAME_RELEASE))
        if len(greeting) != 1 + _NONCE:
            raise WireError(f"the server's greeting on a sync stream has {len(greeting)} bytes, not {1 + _NONCE}")
        self._nonce = os.urandom(_NONCE)
        self._secret = _secrets(key, path, greeting, self._nonce)[0]
        self._messages = 0
        self._last = -1
        self.asked = 0
        """The number of requests so far, which is the number of the next one."""

    def message(self, device: str, requests: Sequence[Request]) -> bytes:
        """Encode the next message; its requests get the next numbers, in order."""
        body = bytearray()
        name = device.encode("utf-8", "surrogatepass")
        put_varint(body, len(name))
        body += name
        for request in requests:
            body.append(request.kind)
            put_varint(body, len(request.payload))
            body += request.payload
        tag = _tag(self._secret, self._messages, bytes(body))
        opening = b"" if self._messages else self._nonce
        self._messages += 1
        self.asked += len(requests)
        return opening + tag + body

    def answers(self, data: bytes) -> list[tuple[int, Answer]]:
        """Decode the answers in a message, by number; WireError."""
        cursor = Cursor(data, _WHAT)
        found: list[tuple[int, Answer]] = []
        while not cursor.done:
            head = cursor.varint(_MAX_DISTANCE)
            distance = head >> 1
            number = self._last + 1 + (-(distance + 1) // 2 if distance & 1 else distance // 2)
            payload = cursor.bytes(MAX_PAYLOAD)
            if not 0 <= number < self.asked:
                raise WireError(f"{_WHAT} answers {number}, which was not asked")
            self._last = number
            found.append((number, _refusal(payload) if head & 1 else payload))
        return found


def _refusal(payload: bytes) -> SwiftletError:
    try:
        status, fields = json.loads(payload)
    except (ValueError, TypeError, RecursionError) as error:
        raise WireError(f"a refusal in {_WHAT} is not [status, error]") from error
    if type(status) is not int or not isinstance(fields, dict):
        raise WireError(f"a refusal in {_WHAT} is not [status, error]")
    return error_from_wire(status, fields)


class Answerer:
    """The answering side of one stream."""

    def __init__(self, key: ClusterKey | None, path: str) -> None:
        """With `key` None unsigned messages are accepted."""
        self._key = key
        self._path = path
        self.greeting = bytes([VERSION]) + os.urandom(_NONCE)
        """The greeting, which is sent before anything is read."""
        self._secret: bytes | None = None
        self._messages = 0
        self._asked = 0
        self._last = -1

    def requests(self, data: bytes) -> Batch:
        """Decode the requests of the next message; Unauthorized, WireError."""
        cursor = Cursor(data, _WHAT)
        nonce = b"" if self._messages else cursor.take(_NONCE)
        tag = cursor.take(_TAG)
        body = data[cursor.at :]
        secrets = _secrets(self._key, self._path, self.greeting, nonce) if self._secret is None else (self._secret,)
        fitting = [one for one in secrets if compare_digest(_tag(one, self._messages, body), tag)]
        if not fitting:
            raise Unauthorized("a message was not made with the cluster's key; give every service the same one")
        self._secret = fitting[0]
        self._messages += 1
        return self._batch(Cursor(body, _WHAT))

    def _batch(self, cursor: Cursor) -> Batch:
        try:
            device = cursor.bytes(_MAX_NAME).decode("utf-8")
        except UnicodeDecodeError as error:
            raise WireError(f"the device's name in {_WHAT} is not UTF-8") from error
        requests: list[Request] = []
        while not cursor.done:
            if len(requests) == MAX_REQUESTS:
                raise WireError(f"{_WHAT} has more than {MAX_REQUESTS} requests; send fewer at a time")
            kind = cursor.take(1)[0]
            requests.append(Request(kind, cursor.bytes(MAX_PAYLOAD)))
        first = self._asked
        self._asked += len(requests)
        return Batch(device, first, requests)

    def answers(self, answers: Iterable[tuple[int, Answer]]) -> bytes:
        """Encode a message with answers, by the numbers of their requests."""
        out = bytearray()
        for number, answer in answers:
            distance = number - self._last - 1
            self._last = number
            refused = isinstance(answer, SwiftletError)
            put_varint(out, (distance * 2 if distance >= 0 else -distance * 2 - 1) << 1 | refused)
            payload = json_bytes(error_to_wire(answer)) if isinstance(answer, SwiftletError) else answer
            put_varint(out, len(payload))
            out += payload
        return bytes(out)
