"""The audit's pace follows what servers need to answer."""

from __future__ import annotations

import pytest

from swiftlet.sync.audit.pace import AuditSettings, Pacer, rest_s


@pytest.mark.parametrize(
    ("names", "worked_s", "rows_per_s", "share", "expected_s"),
    [
        (500, 1.0, 100.0, 0.5, 4.0),  # The rate is what limits.
        (500, 4.0, 100.0, 0.1, 36.0),  # Servers are slow: the share is.
        (0, 2.0, 100.0, 0.25, 6.0),
        (500, 1.0, 0.0, 0.5, 1.0),
        (500, 9.0, 0.0, 1.0, 0.0),
    ],
)
def test_rest(names: int, worked_s: float, rows_per_s: float, share: float, expected_s: float) -> None:
    assert rest_s(names, worked_s, AuditSettings(rows_per_s=rows_per_s, share=share)) == pytest.approx(expected_s)


async def test_a_walk_takes_its_share_whatever_answers_take() -> None:
    now_s = rested_s = worked_s = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now_s, rested_s
        now_s += seconds
        rested_s += seconds

    pacer = Pacer(AuditSettings(share=0.1), lambda: now_s, sleep)
    now_s += 1000.0  # Between two passes.
    pacer.begin()
    for step_s in (0.01, 0.5, 20.0, 0.3):
        now_s += step_s
        worked_s += step_s
        await pacer.rest()
    assert worked_s / (worked_s + rested_s) == pytest.approx(0.1)
