"""The vocabulary that storage servers and their clients share over HTTP: JSON forms, errors.

Both sides import this module and nothing of each other. Everything that arrives is untrusted until it has been parsed:
a length over its limit, JSON of another shape or a missing field is a `WireError`, never a KeyError further down.

Fault model: a connection may end after any byte. A peer may be of another version: unknown JSON fields are ignored,
unknown error kinds become NodeError.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from swiftlet.errors import (
    ChecksumMismatch,
    ClockDiffers,
    DeviceFailed,
    DeviceLocked,
    DiskFull,
    Forbidden,
    InvalidName,
    NameTooLong,
    NodeBusy,
    NodeError,
    NodeTimeout,
    NodeUnreachable,
    NotEmpty,
    NotFound,
    NotPlain,
    NotTaken,
    PageTooCostly,
    PolicyConflict,
    SizeMismatch,
    StoreFormatError,
    Superseded,
    SwiftletError,
    TooMuchMetadata,
    Unauthorized,
    Unavailable,
    Unproved,
)
from swiftlet.timestamp import Timestamp

SIGNATURE_HEADER = "X-Swiftlet-Signature"
"""Proof that the sender holds the cluster's key; see `swiftlet.transport.signing`."""
JSON_TYPE = "application/json"
BYTES_TYPE = "application/octet-stream"

MAX_JSON_BODY = 64 * 1024
"""The largest size in bytes of a JSON body to a device."""


class WireError(SwiftletError):
    """A message that is malformed, cut off or over a limit (HTTP 400); nothing of it was acted upon."""


_KINDS: dict[type[SwiftletError], int] = {
    WireError: 400,
    InvalidName: 400,
    NameTooLong: 400,
    Unauthorized: 401,
    Forbidden: 403,
    NotFound: 404,
    Superseded: 409,
    ClockDiffers: 409,
    NotPlain: 409,
    NotEmpty: 409,
    PolicyConflict: 409,
    TooMuchMetadata: 400,
    PageTooCostly: 400,
    ChecksumMismatch: 422,
    SizeMismatch: 422,
    StoreFormatError: 500,
    DeviceLocked: 500,
    NodeError: 500,
    NodeUnreachable: 502,
    NodeBusy: 503,
    Unavailable: 503,
    Unproved: 503,
    NotTaken: 503,
    NodeTimeout: 504,
    DiskFull: 507,
    DeviceFailed: 507,
}
_BY_NAME = {kind.__name__: kind for kind in _KINDS}
_PEERS_TROUBLE = (WireError, Unauthorized, Forbidden, ClockDiffers, NotPlain, StoreFormatError, DeviceLocked)
"""Errors of a peer about itself or about our requests: for our caller they mean a failed node, not an answer."""


def error_to_wire(error: SwiftletError) -> tuple[int, dict[str, Any]]:
    """Return the HTTP status and JSON body of a domain error: `{"error": kind, "message": text[,
    "timestamp": value]}`.
    """
    for kind in type(error).__mro__:
        if kind in _KINDS:
            body: dict[str, Any] = {"error": kind.__name__, "message": str(error)}
            timestamp = getattr(error, "timestamp", None)
            if isinstance(timestamp, Timestamp):
                body["timestamp"] = timestamp.value
            return _KINDS[kind], body
    return 500, {"error": "NodeError", "message": str(error)}


def error_from_wire(status: int, body: bytes | Mapping[str, Any]) -> SwiftletError:
    """Return the domain error in a peer's answer of `status`; NodeError (or NodeBusy for 503) when it is not one of
    ours.
    """
    try:
        fields = json_object(body) if isinstance(body, bytes) else body
        kind = _BY_NAME[text(fields, "error")]
        message = text(fields, "message")
        return _rebuild(kind, message, fields)
    except (WireError, KeyError):
        if status == 503:
            return NodeBusy("the node answered 503")
        return NodeError(f"the node answered {status} without saying why")


def _rebuild(kind: type[SwiftletError], message: str, fields: Mapping[str, Any]) -> SwiftletError:
    if kind is Superseded:
        return Superseded(message, timestamp(fields, "timestamp"))
    if kind is NotFound:
        return NotFound(message, timestamp(fields, "timestamp") if fields.get("timestamp") is not None else None)
    if kind is Unavailable:
        return NodeBusy(message)
    if kind in _PEERS_TROUBLE:
        return NodeError(f"{kind.__name__}: {message}")
    return kind(message)


def json_bytes(value: object) -> bytes:
    """Return compact JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def json_object(data: bytes | bytearray | memoryview) -> dict[str, Any]:
    """Return the JSON object in the data. Raises WireError for anything else."""
    try:
        value = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise WireError(f"the message is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise WireError("the message is not a JSON object")
    return value


def text(fields: Mapping[str, Any], name: str) -> str:
    """Return a field that must be text. Raises WireError."""
    value = fields.get(name)
    if not isinstance(value, str):
        raise WireError(f"field {name!r} is missing or not a string")
    return value


def number(fields: Mapping[str, Any], name: str) -> int:
    """Return a field that must be an integer of 0 or more. Raises WireError."""
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise WireError(f"field {name!r} is missing or not an integer of 0 or more")
    return value


def flag(fields: Mapping[str, Any], name: str) -> bool:
    """Return a field that must be true or false. Raises WireError."""
    value = fields.get(name)
    if not isinstance(value, bool):
        raise WireError(f"field {name!r} is missing or not true or false")
    return value


def timestamp(fields: Mapping[str, Any], name: str) -> Timestamp:
    """Return a field that must be a timestamp's 64-bit value. Raises WireError."""
    try:
        return Timestamp(number(fields, name))
    except ValueError as error:
        raise WireError(f"field {name!r} is not a timestamp: {error}") from error


def texts(fields: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return a field that must be an object of texts. Raises WireError."""
    value = fields.get(name)
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise WireError(f"field {name!r} is missing or not an object whose values are strings")
    return value


def array(fields: Mapping[str, Any], name: str) -> list[Any]:
    """Return a field that must be an array. Raises WireError."""
    value = fields.get(name)
    if not isinstance(value, list):
        raise WireError(f"field {name!r} is missing or not an array")
    return value


def answers_to_wire(answers: Sequence[dict[str, Any] | SwiftletError]) -> dict[str, Any]:
    """Encode the answers, errors included, each as `[status, fields]`."""
    return {"answers": [error_to_wire(one) if isinstance(one, SwiftletError) else (200, one) for one in answers]}


def answers_from_wire(fields: Mapping[str, Any], count: int) -> list[dict[str, Any] | SwiftletError]:
    """Decode the answers to so many requests; WireError."""
    found = array(fields, "answers")
    if len(found) != count:
        raise WireError(f"{len(found)} answers to {count} requests")
    return [_answer(one) for one in found]


def _answer(found: object) -> dict[str, Any] | SwiftletError:
    match found:
        case [200, dict() as fields]:
            return fields
        case [int() as status, dict() as fields]:
            return error_from_wire(status, fields)
    raise WireError("an answer is not a status and an object")
