"""Parses the JSON of a manifest that a client sends, in bounded time. Pure.

Parsing is slow not by the number of bytes but by the number of values, of which 8 MiB may hold millions. They are
counted before anything is built from them, with operations that look at each byte a few times.
"""

from __future__ import annotations

import json

from swiftlet.api.http.problems import ApiError

_FEW_VALUES = 1 << 17
"""So many values are parsed quickly, whatever they are."""
_VALUES_PER_ENTRY = 8
"""An entry has at most four members; the rest allows for invalid ones, which are reported."""
_QUOTES_PER_VALUE = 4


def load_list(raw: bytes, most: int, reason: str) -> list[object]:
    """Return the list that a client sent; 400 for anything else, 413 with `reason` for far more values than `most`
    entries.
    """
    try:
        text = raw.decode("utf-8-sig")
        if _has_more_values(raw, most):
            raise ApiError(413, reason)
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "Manifest must be valid JSON.") from error
    if not isinstance(entries, list):
        raise ApiError(400, "Manifest must be a list.")
    if len(entries) > most:
        raise ApiError(413, reason)
    return entries


def _has_more_values(raw: bytes, entries: int) -> bool:
    """Return whether there are more values than so many entries can have.

    Without escaped backslashes and quotes, every second piece between quotes is outside of strings. Text for which that
    is wrong is not JSON, and its parser stops at the first error.
    """
    most = max(_FEW_VALUES, _VALUES_PER_ENTRY * entries)
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > _QUOTES_PER_VALUE * most:
        return True
    outside = b"".join(plain.split(b'"')[::2])
    return sum(map(outside.count, (b",", b"[", b"{"))) > most
