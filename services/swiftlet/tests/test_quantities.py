"""Quantities as Kubernetes reads them."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from swiftlet.errors import SettingsError
from swiftlet.quantities import PATTERN, parse_quantity, quantity_bytes


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("12", 12),
        ("500m", Fraction(1, 2)),
        ("1k", 1000),
        ("1Ki", 1024),
        ("1.5Gi", 3 * 2**29),
        ("2E", 2 * 10**18),
        ("1Ei", 2**60),
        ("1e3", 1000),
        ("2.5E2", 250),
        ("100n", Fraction(1, 10**7)),
    ],
)
def test_the_value_is_exact(text: str, value: Fraction | int) -> None:
    assert parse_quantity(text) == value
    assert re.fullmatch(PATTERN, text)


def test_bytes_are_rounded_up() -> None:
    assert quantity_bytes("1m") == 1
    assert quantity_bytes("1.5") == 2
    assert quantity_bytes("10Gi") == 10 * 2**30


@pytest.mark.parametrize(
    "text", ["", "Gi", "-1Gi", "1GiB", "1 Gi", "ten", ".5", "5.", "1Gi\n", "1e", "1e999", "9" * 33]
)
def test_what_is_no_quantity_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(SettingsError, match="is not a quantity; write a number with a unit such as 10Gi"):
        parse_quantity(text)
