"""How a device gets back what it has lost: looked at again and again, and judged once it is known what it has in the
end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

EACH_S = 0.05
"""It is looked at so often."""
EDGE = 0.02
"""The first and the last of its bytes that don't count: files that any empty device gets, and what comes in later
rounds.
"""


@dataclass(frozen=True)
class Sample:
    """What was so at a moment."""

    at_s: float
    """When that was, by the monotonic clock."""
    stored: int
    """Bytes on the device."""
    read: int | None
    """Bytes read so far of the disk that it is on; None when it is on none."""
    reads: int
    """Reads of clients so far."""


@contextmanager
def looking(look: Callable[[float], Sample]) -> Iterator[list[Sample]]:
    """Look within the block, at its begin and at its end as well; the block gets the samples, the oldest first."""
    samples, over = [look(time.monotonic())], threading.Event()
    failed: list[Exception] = []

    def repeat() -> None:
        try:
            while not over.wait(EACH_S):
                samples.append(look(time.monotonic()))
        except (OSError, ValueError) as error:
            failed.append(error)

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()
    if failed:
        raise RuntimeError(f"the device could not be looked at: {failed[0]}")
    samples.append(look(time.monotonic()))


def span(samples: Sequence[Sample], began_s: float) -> tuple[Sample, Sample] | None:
    """Return the samples between which a device got what it has in the last one; None when it got nothing.

    The first one is that of the moment when the store could begin, or when bytes came if they came before that.
    """
    first, last = samples[0].stored, samples[-1].stored
    edge = EDGE * (last - first)
    if edge <= 0:
        return None
    came = next(at for at, sample in enumerate(samples) if sample.stored - first >= edge)
    could = max((at for at, sample in enumerate(samples) if sample.at_s <= began_s), default=0)
    begin = samples[max(0, min(came - 1, could))]
    return begin, next(sample for sample in samples if last - sample.stored <= edge)
