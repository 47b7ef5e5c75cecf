"""The committed reference is what the settings say."""

from __future__ import annotations

from pathlib import Path

from swiftlet.settings import SERVICES
from swiftlet.settings.reference import render_page

PAGE = Path(__file__).parents[4] / "docs" / "settings.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render_page(SERVICES.values()), "run `make docs`"
