"""Kubernetes quantities: `10Gi`, `1.5G`, `500m`, `1e3`. Exact, never negative, rounded up to whole bytes."""

from __future__ import annotations

import re
from fractions import Fraction

from swiftlet.errors import SettingsError

MAX_CHARS = 32
"""Characters of a quantity in the CRDs: far more than any real one has."""
PATTERN = r"^[0-9]+(\.[0-9]+)?([KMGTPE]i|[numkMGTPE]|[eE][0-9]{1,2})?$"
"""The pattern of quantities in the CRDs: without a sign, and with digits on both sides of a point."""

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:([KMGTPE]i|[numkMGTPE])|[eE]([0-9]{1,2}))?", re.ASCII)
_FACTORS = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "k": Fraction(10**3),
    **{letter: Fraction(1000**power) for power, letter in enumerate("MGTPE", 2)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)},
}


def parse_quantity(text: str) -> Fraction:
    """The exact number that a quantity stands for; SettingsError when it is none."""
    match = _QUANTITY.fullmatch(text) if len(text) <= MAX_CHARS else None
    if match is None:
        raise SettingsError(f"{text[:MAX_CHARS]!r} is not a quantity; write a number with a unit such as 10Gi or 500M")
    number, suffix, exponent = match.groups()
    if exponent is not None:
        return Fraction(number) * Fraction(10 ** int(exponent))
    return Fraction(number) * _FACTORS.get(suffix, 1)


def quantity_bytes(text: str) -> int:
    """The bytes that a quantity stands for, a fraction counted as a whole one; SettingsError when it is none."""
    value = parse_quantity(text)
    return -(-value.numerator // value.denominator)
