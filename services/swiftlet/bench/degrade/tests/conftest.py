"""A store in this process for tests of phases."""

from __future__ import annotations

from swiftlet.bench.tests.conftest import store

__all__ = ["store"]
