"""JSON forms of claims; shared by container servers and their clients. `docs/wire.md` lists the requests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from swiftlet.model import Amounts, Bounds, Claim, Confirmation, Excess
from swiftlet.transport.wire import WireError, array, flag, number, text

MAX_LIFE_S = 86_400
"""The longest time in seconds that a claim may be held without being renewed."""
MAX_MANY = 200
"""The largest number of requests about claims in one message."""
_MAX_QUANTITY = 1 << 63
_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_WHAT = ("containers", "objects", "bytes")


def claim_to_wire(claim: Claim, bounds: Bounds, life_s: int) -> dict[str, Any]:
    """Encode a request for a claim."""
    return {"id": claim.id, "asked": asdict(claim.asked), "bounds": asdict(bounds), "life_s": life_s}


def claim_from_wire(fields: Mapping[str, Any]) -> tuple[Claim, Bounds, int]:
    """Decode the claim, its limits and its lifetime in seconds; WireError."""
    asked, bounds = _object(fields, "asked"), _object(fields, "bounds")
    life_s = number(fields, "life_s")
    if not 1 <= life_s <= MAX_LIFE_S:
        raise WireError(f"life_s is {life_s}, not within 1 and {MAX_LIFE_S}")
    claim = Claim(claim_id(fields), Amounts(*(_quantity(asked, what) for what in _WHAT)))
    return claim, Bounds(*(None if bounds.get(what) is None else _quantity(bounds, what) for what in _WHAT)), life_s


def claim_id(fields: Mapping[str, Any]) -> str:
    """Decode the id of a claim; WireError."""
    found = text(fields, "id")
    if not _ID.fullmatch(found):
        raise WireError("a claim's id has 32 hex digits")
    return found


def excess_to_wire(excess: Excess | None) -> dict[str, Any]:
    """Encode the answer to a claim."""
    return {"excess": None if excess is None else asdict(excess)}


def excess_from_wire(fields: Mapping[str, Any]) -> Excess | None:
    """Decode why a claim was refused; WireError."""
    if "excess" not in fields:
        raise WireError("excess is missing")
    if fields["excess"] is None:
        return None
    excess = _object(fields, "excess")
    if text(excess, "what") not in _WHAT:
        raise WireError(f"{excess['what']!r} is not a limit")
    return Excess(text(excess, "what"), *(_quantity(excess, name) for name in ("most", "used", "asked")))


def confirmation_from_wire(fields: Mapping[str, Any]) -> Confirmation:
    """Decode a server's answer about a confirmed claim; WireError."""
    return Confirmation(flag(fields, "listed"), flag(fields, "reported"))


def many_to_wire(requests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Encode requests of one kind as one message."""
    return {"claims": list(requests)}


def many_from_wire(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Decode the requests of a message, 1 to `MAX_MANY`; WireError."""
    found = array(fields, "claims")
    if not 1 <= len(found) <= MAX_MANY:
        raise WireError(f"claims has {len(found)} requests, not within 1 and {MAX_MANY}; send more messages")
    if not all(isinstance(one, dict) for one in found):
        raise WireError("claims has something that is not an object")
    return found


def _object(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = fields.get(name)
    if not isinstance(value, dict):
        raise WireError(f"{name} is not an object")
    return value


def _quantity(fields: Mapping[str, Any], name: str) -> int:
    value = number(fields, name)
    if not 0 <= value < _MAX_QUANTITY:
        raise WireError(f"{name} is {value}, which is out of range")
    return value
