"""The fixtures of the tests of one generator."""

from swiftlet.bench.tests.conftest import document, store

__all__ = ["document", "store"]
