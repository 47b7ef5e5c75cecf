"""Tests of how `make clients` reads the outcomes of other projects' tests, and of the list of deviations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from e2e.clients.outcomes import Deviation, Outcome, Result, compare, count, of_go, of_junit, parse_deviations

JUNIT = """<testsuites><testsuite>
<testcase file="test/functional/test_slo.py" classname="test_slo.TestSlo" name="test_get" />
<testcase file="test/functional/test_slo.py" classname="test_slo.TestSlo" name="test_put">
  <failure message="502 != 201&#10;more">x</failure></testcase>
<testcase file="test/functional/test_slo.py" classname="test_slo.TestSlo" name="test_slow">
  <skipped message="no time" /></testcase>
<testcase file="test/functional/test_slo.py" classname="test_slo.TestSlo" name="test_end" />
<testcase file="test/functional/test_slo.py" classname="test_slo.TestSlo" name="test_end">
  <error message="at the end">x</error></testcase>
<testcase file="test_plain.py" classname="test_plain" name="test_it" />
</testsuite></testsuites>"""


def event(action: str, test: str | None = None, output: str | None = None) -> str:
    """A line of `go test -json`."""
    parts = {"Action": action, "Package": "example.org/p", "Test": test, "Output": output}
    return json.dumps({name: value for name, value in parts.items() if value is not None})


def test_outcomes_in_junit_xml() -> None:
    assert of_junit(JUNIT) == {
        "test_slo::TestSlo::test_get": Outcome(Result.PASSED),
        "test_slo::TestSlo::test_put": Outcome(Result.FAILED, "502 != 201"),
        "test_slo::TestSlo::test_slow": Outcome(Result.SKIPPED, "no time"),
        "test_slo::TestSlo::test_end": Outcome(Result.FAILED, "at the end"),
        "test_plain::test_it": Outcome(Result.PASSED),
    }


def test_outcomes_of_go() -> None:
    lines = ["warning: something", event("run", "TestA"), event("output", "TestA", "=== RUN TestA\n")]
    lines += [event("output", "TestA", "a_test.go:7: 409\n"), event("fail", "TestA"), event("pass", "TestB")]
    lines += [event("output", "TestC", "not here\n"), event("skip", "TestC"), event("fail")]
    assert of_go(lines) == {
        "TestA": Outcome(Result.FAILED, "a_test.go:7: 409"),
        "TestB": Outcome(Result.PASSED),
        "TestC": Outcome(Result.SKIPPED, "not here"),
    }


def test_a_package_of_go_that_is_not_built_has_failed() -> None:
    assert of_go([event("output", None, "no such module\n"), event("fail")]) == {
        "example.org/p": Outcome(Result.FAILED, "no such module")
    }


def test_what_is_as_listed_is_right() -> None:
    outcomes = {"a": Outcome(Result.PASSED), "b1": Outcome(Result.FAILED, "x"), "b2": Outcome(Result.FAILED)}
    assert compare(outcomes, [Deviation(Result.FAILED, "why", ("b*",))], 1) == []
    assert count(outcomes, Result.FAILED) == 2


@pytest.mark.parametrize(
    ("outcome", "listed", "wrong"),
    [
        (Outcome(Result.FAILED, "409"), None, "a: failed, expected to be passed. 409"),
        (Outcome(Result.SKIPPED, "no"), None, "a: skipped, expected to be passed. no"),
        (Outcome(Result.PASSED), Result.FAILED, "a: passed, expected to be failed."),
        (Outcome(Result.PASSED), Result.SKIPPED, "a: passed, expected to be skipped."),
        (Outcome(Result.FAILED), Result.SKIPPED, "a: failed, expected to be skipped."),
    ],
)
def test_what_is_not_as_listed_is_told(outcome: Outcome, listed: Result | None, wrong: str) -> None:
    deviations = [Deviation(listed, "why", ("a",))] if listed else []
    assert compare({"a": outcome}, deviations, 0) == [wrong]


def test_a_deviation_without_a_test_and_too_few_tests_are_told() -> None:
    wrong = compare({"a": Outcome(Result.PASSED)}, [Deviation(Result.FAILED, "why", ("gone",))], 2)
    assert wrong == [
        "gone: listed in deviations.yaml, and there is no such test",
        "1 tests passed, and there have to be at least 2",
    ]


@pytest.mark.parametrize(
    "entry",
    [
        {"expected": "passed", "reason": "why", "tests": ["a"]},
        {"expected": "failed", "reason": " ", "tests": ["a"]},
        {"expected": "failed", "reason": "why", "tests": ["a", "a"]},
        {"expected": "maybe", "reason": "why", "tests": ["a"]},
    ],
)
def test_a_list_that_makes_no_sense_is_refused(entry: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        parse_deviations({"suite": [entry]})


def test_the_list_of_deviations_can_be_read() -> None:
    assert parse_deviations(yaml.safe_load(Path(__file__).with_name("deviations.yaml").read_text()))
