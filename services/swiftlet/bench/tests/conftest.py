"""Fixtures: a store in this process, and a small scenario."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from swiftlet.bench.tests.store import Store, running


@pytest.fixture
def store() -> Iterator[Store]:
    with running() as made:
        yield made


@pytest.fixture
def document() -> dict[str, Any]:
    """A scenario that takes a moment."""
    return {
        "title": "small",
        "containers": 2,
        "objects": 10,
        "sizes": {"uniform": {"least": 0, "most": 2000}},
        "operations": {"create": 1, "read": 4, "update": 1, "delete": 1, "list": 1, "head": 1},
        "closed": {"connections": [1, 3]},
        "warm_up_s": 0,
        "count": 40,
    }
