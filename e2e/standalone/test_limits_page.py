"""docs/limits.md names every limit of the source, with its value and a reason."""

from __future__ import annotations

import pytest
import yaml

from e2e.limits_page import PAGE, ROOT, TEXTS, limits, reason_of, render
from swiftlet.settings.sections import LimitsSection

KNOWN = limits()
TEXT = yaml.safe_load(TEXTS.read_text())
ROWS = [row for section in TEXT["sections"] for row in section["limits"]]
TOLD = [row["key"] for row in ROWS]


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render(), "run `make docs`"


@pytest.mark.parametrize("key", sorted(KNOWN))
def test_every_limit_is_on_the_page_and_has_a_reason(key: str) -> None:
    module, _, name = key.partition(" ")
    assert (f"`{module}` `{name}`" if name else f"`{key}`") in PAGE.read_text(), "run `make docs`"
    assert key in TOLD or reason_of(KNOWN[key], TEXT["reasons"]), f"{key} has no text beside it, nor in {TEXTS.name}"


def test_every_published_limit_says_what_clients_see() -> None:
    assert {f"limits.{name}" for name in LimitsSection.model_fields} <= set(TOLD)


def test_the_texts_are_of_limits_that_there_are() -> None:
    assert len(set(TOLD)) == len(TOLD)
    assert all(row.keys() == {"key", "what", "met", "why"} and all(row.values()) for row in ROWS)
    assert set(TOLD) | set(TEXT["reasons"]) <= set(KNOWN)


def test_constants_of_python_and_rust_are_found() -> None:
    assert KNOWN["api/requests/form_post.py MAX_FIELDS"].value == "100"
    assert KNOWN["front/head.rs MAX_BODY"].value == "32 Mi"
    assert KNOWN["limits.max_meta_count"].value == str(LimitsSection().max_meta_count)


def test_the_page_is_linked() -> None:
    assert "docs/limits.md" in (ROOT / "README.md").read_text()
