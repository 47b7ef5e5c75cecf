"""Counts what becomes of the rows that the front delivers itself, as those that Python delivers are counted."""

from __future__ import annotations

from typing import TypedDict

from prometheus_client import Counter
from swiftlet_native import Front

from swiftlet.placement.metrics import ACKNOWLEDGED, UPDATE_OUTCOMES, UPDATE_REQUESTS, UPDATES_SENT
from swiftlet.placement.rows.row_delivery import UpdateOutcome

FRONT_ROWS = Counter(
    "swiftlet_front_rows_total",
    "Listing rows of writes that the front answers, by outcome: taken (by all container servers, without Python), "
    "refused (a server did not take them, so that Python delivered them) or left (Python delivered them, because a "
    "server is not spoken to natively or has just refused).",
    ["outcome"],
)
LEFT_PENDING = Counter(
    "swiftlet_front_rows_left_pending_total",
    "Listing rows that container servers have taken from the front and not confirmed as durable: object servers "
    "deliver them a second time.",
)


class RowsStatus(TypedDict):
    """Rows in the status report of the front."""

    delivering: int
    """The number of rows that wait for container servers."""
    syncing: int
    """The number of rows that container servers have taken, and not made durable yet."""
    acknowledging: int
    """The number of acknowledgements that wait to be sent to devices, or answered by them."""
    taken: int
    """The number of rows that container servers have taken."""
    refused: int
    """The number of rows that a container server did not take."""
    left: int
    """The number of rows that were left to Python without an attempt."""


class RowRecords:
    """Takes the counts of one front."""

    def __init__(self, front: Front) -> None:
        """Begin at zero, as the front."""
        self._front = front
        self._last = (0,) * 9
        # All labels exist from the start: a query for increases misses the event that a counter begins with.
        for outcome in ("taken", "refused", "left"):
            FRONT_ROWS.labels(outcome)

    def take(self) -> None:
        """Count what has become of rows since the last call."""
        now = self._front.rows()[3:]
        new = [count - last for count, last in zip(now, self._last, strict=True)]
        self._last = now
        if not any(new):
            return
        messages, sent, taken, refused, left, left_pending, acknowledged, lost, dropped = new
        UPDATE_REQUESTS.inc(messages)
        UPDATES_SENT.inc(sent)
        UPDATE_OUTCOMES.labels(UpdateOutcome.LISTED.value).inc(taken)
        LEFT_PENDING.inc(left_pending)
        for counter, counts in (
            (FRONT_ROWS, {"taken": taken, "refused": refused, "left": left}),
            (ACKNOWLEDGED, {"acknowledged": acknowledged, "lost": lost, "dropped": dropped}),
        ):
            for outcome, count in counts.items():
                counter.labels(outcome).inc(count)

    def status(self) -> RowsStatus:
        """Return the field `rows` of the front in the status report."""
        delivering, not_durable, acknowledging, _, _, taken, refused, left, *_ = self._front.rows()
        return RowsStatus(
            delivering=delivering,
            syncing=not_durable,
            acknowledging=acknowledging,
            taken=taken,
            refused=refused,
            left=left,
        )
