"""Kubernetes quantities: `10Gi`, `1.5G`, `500m`, `1e3`. Exact, never negative, rounded up to whole bytes."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from swiftlet.errors import SettingsError

MAX_CHARS = 32
"""The longest quantity in the CRDs, in characters; real ones are much shorter."""
PATTERN = r"^[0-9]+(\.[0-9]+)?([KMGTPE]i|[numkMGTPE]|[eE][0-9]{1,2})?$"
"""The pattern of quantities in the CRDs: without a sign, and with digits on both sides of a point."""

_REMEMBERED = 4096
"""Quantities whose numbers are remembered: those of all clusters are compared at each look at one."""
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:([KMGTPE]i|[numkMGTPE])|[eE]([0-9]{1,2}))?", re.ASCII)
_FACTORS = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "k": Fraction(10**3),
    **{letter: Fraction(1000**power) for power, letter in enumerate("MGTPE", 2)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)},
}


@lru_cache(maxsize=_REMEMBERED)
def parse_quantity(text: str) -> Fraction:
    """Return the exact number that a quantity stands for. Raises SettingsError when it is not a quantity."""
    match = _QUANTITY.fullmatch(text) if len(text) <= MAX_CHARS else None
    if match is None:
        raise SettingsError(f"{text[:MAX_CHARS]!r} is not a quantity; write a number with a unit such as 10Gi or 500M")
    number, suffix, exponent = match.groups()
    if exponent is not None:
        return Fraction(number) * Fraction(10 ** int(exponent))
    return Fraction(number) * _FACTORS.get(suffix, 1)


def quantity_bytes(text: str) -> int:
    """Return the bytes that a quantity stands for, rounded up. Raises SettingsError when it is not a quantity."""
    value = parse_quantity(text)
    return -(-value.numerator // value.denominator)
