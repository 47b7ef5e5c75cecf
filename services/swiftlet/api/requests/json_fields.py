"""Fields of requests in JSON, each checked by its name. The errors are ApiError 400."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from swiftlet.api.http.problems import ApiError

MAX_NUMBER = (1 << 64) - 1
"""The largest number that a field may have: native code keeps it in 64 bits."""


def json_fields(body: bytes, known: Collection[str], what: str) -> dict[str, Any]:
    """Return the fields of a body that is a JSON object; `what` it is, the error about an unknown field says."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "the body must be a JSON object") from error
    if not isinstance(fields, dict):
        raise ApiError(400, "the body must be a JSON object")
    unknown = fields.keys() - known
    if unknown:
        raise ApiError(400, f"{min(unknown)[:64]!r} is not a field of {what}")
    return fields


def text_field(fields: Mapping[str, object], name: str, limit: int) -> str | None:
    """Return a text of 1 to `limit` bytes of UTF-8; None if the field is missing."""
    if name not in fields:
        return None
    text = fields[name]
    try:
        fits = isinstance(text, str) and 0 < len(text.encode()) <= limit and "\0" not in text
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise ApiError(400, f"{name}: a text of 1 to {limit} bytes of UTF-8 is needed")
    return str(text)


def name_field(fields: Mapping[str, object], name: str, limit: int) -> str:
    """Return a text without a slash, which has to be there."""
    text = text_field(fields, name, limit)
    if text is None:
        raise ApiError(400, f"{name} is missing")
    if "/" in text:
        raise ApiError(400, f"{name}: it can't contain '/'")
    return text


def number_field(fields: Mapping[str, object], name: str, least: int, default: int) -> int:
    """Return a whole number from `least` to `MAX_NUMBER`; `default` if the field is missing."""
    number = fields.get(name, default)
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= MAX_NUMBER:
        raise ApiError(400, f"{name}: a whole number from {least} on is needed")
    return number
