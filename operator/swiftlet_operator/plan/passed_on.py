"""Conditions of other projects' objects, repeated in ours: reason and message, as far as the API allows their form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from swiftlet.crd import Fact
from swiftlet.crd.conditions import REASON_PATTERN

_MAX_MESSAGE = 600
_REASON = re.compile(REASON_PATTERN, re.ASCII)


def condition_of(conditions: Any, type_: str) -> Mapping[str, Any] | None:
    """Return the condition of that type; None when there is none, or it is malformed."""
    found = conditions if isinstance(conditions, list) else []
    return next((one for one in found if isinstance(one, dict) and one.get("type") == type_), None)


def words(type_: str, theirs: Mapping[str, Any], otherwise: str, what: str, advice: str) -> Fact:
    """Return our condition as False with their reason, or with `otherwise` when they give none; `what` is
    the object.
    """
    reason, message = str(theirs.get("reason") or ""), str(theirs.get("message") or "no message")
    shortened = message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]}..."
    return Fact(type_, "False", reason if _REASON.fullmatch(reason) else otherwise, f"{what}: {shortened}; {advice}")
