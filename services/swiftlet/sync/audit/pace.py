"""How fast the listing audit goes, and what counts as settled."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """Pace and patience of one auditor."""

    rows_per_s: float = 100.0
    """Names looked at in a second at most; 0 for no limit."""
    settle_s: float = 60.0
    """What was written less long ago is left to whoever wrote it."""
    proved_for_s: float = 7 * 86_400.0
    """For how long a database that has not changed since it was proved is taken to be right."""
