"""Counts what becomes of the rows that the front delivers itself, as those that Python delivers are counted."""

from __future__ import annotations

from typing import TypedDict

from prometheus_client import Counter
from swiftlet_native import Front

from swiftlet.placement.metrics import ACKNOWLEDGED, UPDATE_OUTCOMES, UPDATE_REQUESTS, UPDATES_SENT
from swiftlet.placement.rows.row_delivery import UpdateOutcome
from swiftlet.transport.native_metrics import Growth

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
_OUTCOMES = ("taken", "refused", "left")
_ACKNOWLEDGEMENTS = ("acknowledged", "lost", "dropped")
_COUNTED = ("messages", "sent", "left_pending", *_OUTCOMES, *_ACKNOWLEDGEMENTS)


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
        self._growth = Growth()
        # All labels exist from the start: a query for increases misses the event that a counter begins with.
        for outcome in _OUTCOMES:
            FRONT_ROWS.labels(outcome)

    def take(self) -> None:
        """Count what has become of rows since the last call."""
        rows = self._front.rows()
        more = {name: self._growth.of(name, rows[name]) for name in _COUNTED}
        if not any(more.values()):
            return
        UPDATE_REQUESTS.inc(more["messages"])
        UPDATES_SENT.inc(more["sent"])
        UPDATE_OUTCOMES.labels(UpdateOutcome.LISTED.value).inc(more["taken"])
        LEFT_PENDING.inc(more["left_pending"])
        for counter, outcomes in ((FRONT_ROWS, _OUTCOMES), (ACKNOWLEDGED, _ACKNOWLEDGEMENTS)):
            for outcome in outcomes:
                counter.labels(outcome).inc(more[outcome])

    def status(self) -> RowsStatus:
        """Return the field `rows` of the front in the status report."""
        rows = self._front.rows()
        return RowsStatus(
            delivering=rows["delivering"],
            syncing=rows["not_durable"],
            acknowledging=rows["acknowledging"],
            taken=rows["taken"],
            refused=rows["refused"],
            left=rows["left"],
        )
