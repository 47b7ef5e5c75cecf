"""The error of advice: what was given makes no sense, or nothing can be advised."""

from __future__ import annotations

from swiftlet.errors import SwiftletError


class AdviceError(SwiftletError):
    """What was given can't be used; the message names the field and what to do."""
