"""What is recorded: minutes, times that go with them, and targets that come and go."""

from __future__ import annotations

import pytest

from e2e.monitoring.recording import Clock, Recording, Target

TEXT = """\
# TYPE last_round_timestamp_seconds gauge
last_round_timestamp_seconds {last}
# TYPE oldest_seconds gauge
oldest_seconds{{device="d\\"1"}} {age}
# TYPE asked_total counter
asked_total {asked}
"""


def test_the_clock_is_even_between_ticks_and_goes_on_at_its_edges() -> None:
    clock = Clock(100.0)
    for now in (101.0, 105.0):
        clock.tick(now)
    moments = {100.0: 0, 100.5: 30, 101.0: 60, 103.0: 90, 105.0: 120, 109.0: 180, 99.0: -60}
    assert {moment: clock.seconds(moment) for moment in moments} == pytest.approx(moments)


def test_series_have_the_labels_of_their_target_and_times_of_the_recording() -> None:
    now, answers = [1000.0], True
    values = {"last": 0.0, "age": 0.0, "asked": 1.0}

    def exposed() -> str:
        if not answers:
            raise TimeoutError
        return TEXT.format(**values)

    metrics = ("last_round_timestamp_seconds", "oldest_seconds", "asked_total")
    recording = Recording([*metrics, "never"], [Target({"pod": "p"}, exposed)], lambda: now[0])
    for last, age, is_there in ((0.0, 0.0, True), (1001.0, 0.5, True), (1001.0, 0.5, False), (1003.0, 0.0, True)):
        now[0] += 1.0
        values |= {"last": last, "age": age, "asked": values["asked"] + 1}
        answers = is_there
        recording.tick()
    found = {one["series"]: one["values"] for one in recording.input_series(["up", *metrics])}
    assert found == {
        'up{pod="p"}': "_ 1.000000 1.000000 0.000000 1.000000",
        'last_round_timestamp_seconds{pod="p"}': "_ 0.000000 60.000000 stale 180.000000",
        'oldest_seconds{device="d\\"1",pod="p"}': "_ 0.000000 30.000000 stale 0.000000",
        'asked_total{pod="p"}': "_ 2.000000 3.000000 stale 5.000000",
    }
    assert recording.input_series(["never"]) == []
