"""How often a process looks for garbage in cycles.

Rounds make many small values that live for some milliseconds and hold each other in no cycles. By Python's own setting
every 700 of them are looked through, and now and then all that the process has imported: a tenth of what a round of
many changes takes. In a proxy a look at everything keeps all requests waiting for some tenths of a second.
"""

from __future__ import annotations

import gc

NEW_VALUES = 50_000
"""Values made and not yet freed after which the new ones are looked through: some megabytes."""


def collect_garbage_seldom() -> None:
    """What is there now stays for good; what comes is looked through after so many values."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_VALUES)
