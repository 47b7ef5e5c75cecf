"""How rows that the front delivers are counted."""

from __future__ import annotations

from typing import Any, cast

from prometheus_client import REGISTRY

from swiftlet.front.row_records import RowRecords

COUNTERS = {
    "swiftlet_container_update_requests_total": {},
    "swiftlet_container_updates_sent_total": {},
    "swiftlet_container_updates_total": {"outcome": "listed"},
    "swiftlet_front_rows_total": {"outcome": "taken"},
    "swiftlet_front_rows_left_pending_total": {},
    "swiftlet_acknowledged_updates_total": {"outcome": "acknowledged"},
}


NOW = ("delivering", "not_durable", "acknowledging")
SO_FAR = ("messages", "sent", "taken", "refused", "left", "left_pending", "acknowledged", "lost", "dropped")


class FakeFront:
    """Says what it is told to say."""

    def __init__(self) -> None:
        self.said = dict.fromkeys((*NOW, *SO_FAR), 0)

    def rows(self) -> dict[str, int]:
        return dict(self.said)


def counted() -> list[float]:
    return [REGISTRY.get_sample_value(name, labels) or 0.0 for name, labels in COUNTERS.items()]


def of(name: str, outcome: str) -> float:
    return REGISTRY.get_sample_value(name, {"outcome": outcome}) or 0.0


def test_each_change_is_counted_once() -> None:
    front = FakeFront()
    records, before = RowRecords(cast("Any", front)), counted()
    refused, left = of("swiftlet_front_rows_total", "refused"), of("swiftlet_front_rows_total", "left")
    lost, dropped = (of("swiftlet_acknowledged_updates_total", outcome) for outcome in ("lost", "dropped"))
    records.take()
    assert counted() == before
    front.said = dict(zip((*NOW, *SO_FAR), (7, 8, 9, 3, 30, 10, 2, 4, 1, 27, 5, 6), strict=True))
    for _ in range(2):
        records.take()
    found = [new - old for new, old in zip(counted(), before, strict=True)]
    assert found == [3, 30, 10, 10, 1, 27]
    assert of("swiftlet_front_rows_total", "refused") - refused == 2
    assert of("swiftlet_front_rows_total", "left") - left == 4
    assert of("swiftlet_acknowledged_updates_total", "lost") - lost == 5
    assert of("swiftlet_acknowledged_updates_total", "dropped") - dropped == 6
    front.said["taken"] += 1
    records.take()
    assert of("swiftlet_front_rows_total", "taken") - before[3] == 11
    assert records.status() == {
        "delivering": 7,
        "syncing": 8,
        "acknowledging": 9,
        "taken": 11,
        "refused": 2,
        "left": 4,
    }
