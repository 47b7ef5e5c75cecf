"""Conditions merge by type and move their time only when their status does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from swiftlet.crd.conditions import MAX_MESSAGE_CHARS, Condition, Fact, merge_conditions, parse_conditions, rfc3339
from swiftlet.errors import SettingsError

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=5)


def test_a_new_condition_begins_now() -> None:
    (ready,) = merge_conditions((), [Fact("Ready", "Unknown", "FirstVisit", "looking")], 1, NOON)

    assert ready == Condition("Ready", "Unknown", "FirstVisit", "looking", 1, "2026-11-21T12:00:00Z")
    assert not ready.is_true


def test_the_time_changes_with_the_status_only() -> None:
    first = merge_conditions((), [Fact("Ready", "False", "Starting", "0 of 3")], 1, NOON)

    same = merge_conditions(first, [Fact("Ready", "False", "Waiting", "1 of 3")], 2, LATER)
    other = merge_conditions(same, [Fact("Ready", "True", "AllUp")], 2, LATER)

    assert same == (Condition("Ready", "False", "Waiting", "1 of 3", 2, "2026-11-21T12:00:00Z"),)
    assert other == (Condition("Ready", "True", "AllUp", "", 2, "2026-11-21T12:05:00Z"),)


def test_merging_the_same_again_changes_nothing() -> None:
    facts = [Fact("Ready", "True", "AllUp"), Fact("Degraded", "False", "AllUp")]
    first = merge_conditions((), facts, 1, NOON)

    assert merge_conditions(first, facts, 1, LATER) == first


def test_what_nobody_speaks_of_stays_where_it_is() -> None:
    first = merge_conditions((), [Fact("Foreign", "True", "Set"), Fact("Ready", "False", "Starting")], 1, NOON)

    merged = merge_conditions(first, [Fact("Ready", "True", "AllUp"), Fact("Degraded", "False", "AllUp")], 2, LATER)

    assert [one.type for one in merged] == ["Foreign", "Ready", "Degraded"]
    assert merged[0] == first[0]


def test_of_two_facts_of_one_type_the_later_counts() -> None:
    merged = merge_conditions((), [Fact("Ready", "True", "A"), Fact("Ready", "False", "B")], 1, NOON)

    assert [(one.type, one.reason) for one in merged] == [("Ready", "B")]


def test_a_manifest_goes_there_and_back() -> None:
    conditions = merge_conditions((), [Fact("Ready", "True", "AllUp", "serving")], 3, NOON)

    assert parse_conditions({"status": {"conditions": [one.manifest for one in conditions]}}) == conditions
    assert parse_conditions({}) == ()
    assert parse_conditions({"status": None}) == ()


@pytest.mark.parametrize("entry", [{}, {"type": "Ready", "status": "true", "lastTransitionTime": ""}, "Ready"])
def test_a_damaged_condition_is_named(entry: object) -> None:
    with pytest.raises(SettingsError, match=r"status\.conditions"):
        parse_conditions({"status": {"conditions": [entry]}})


def test_long_messages_are_cut_and_too_many_conditions_refused() -> None:
    (one,) = merge_conditions((), [Fact("Ready", "True", "AllUp", "x" * 5000)], 1, NOON)
    assert len(one.message) == MAX_MESSAGE_CHARS

    with pytest.raises(ValueError, match="a resource has 33 conditions; the limit is 32"):
        merge_conditions((), [Fact(f"Type{i}", "True", "Set") for i in range(33)], 1, NOON)


@pytest.mark.parametrize(
    ("type_", "reason"), [("ready", "AllUp"), ("Ready", ""), ("Ready", "all up"), ("Re-ady", "Up")]
)
def test_names_are_camel_case(type_: str, reason: str) -> None:
    with pytest.raises(ValueError, match="is not CamelCase"):
        Fact(type_, "True", reason)


def test_times_are_utc_and_know_their_zone() -> None:
    assert rfc3339(datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=2)))) == "2025-12-31T23:00:00Z"
    with pytest.raises(ValueError, match="must have a time zone"):
        rfc3339(datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point
