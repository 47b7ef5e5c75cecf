"""The error that `swiftlet bench` reports to its user."""

from __future__ import annotations

from swiftlet.errors import SwiftletError


class BenchError(SwiftletError):
    """A scenario, a target or a result can't be used, or preparing failed; the message says what to do."""
