"""Sets how often a process looks for garbage in cycles.

Rounds make many small values that live for some milliseconds and are in no cycles. By Python's default every 700 of
them are examined, and from time to time everything that the process has imported: a tenth of the time of a round with
many changes. In a proxy, examining everything keeps all requests waiting for some tenths of a second.
"""

from __future__ import annotations

import gc

NEW_VALUES = 50_000
"""The number of values, made and not yet freed, after which the new ones are examined: some megabytes."""


def collect_garbage_seldom() -> None:
    """Exempt everything that exists now, and examine new values only after so many of them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_VALUES)
