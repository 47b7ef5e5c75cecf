"""Outcomes of other projects' tests, and how they compare with the list of deviations. Pure.

Every test is expected to pass. `deviations.yaml` names those that are expected to fail or to be skipped, with the
reason; one that is listed and passes is as wrong as one that fails and is not listed, so that the list stays true.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Any
from xml.etree import ElementTree


class Result(StrEnum):
    """How a test ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a test ended, and what it said when it did not pass."""

    result: Result
    message: str = ""


@dataclass(frozen=True, slots=True)
class Deviation:
    """Tests, by patterns of names, that are expected to fail or to be skipped."""

    expected: Result
    reason: str
    tests: tuple[str, ...]

    def covers(self, name: str) -> bool:
        """Whether the test with this name is one of them."""
        return any(fnmatchcase(name, pattern) for pattern in self.tests)


def parse_deviations(document: Mapping[str, Any]) -> dict[str, list[Deviation]]:
    """The deviations by suite; ValueError where the list itself is wrong."""
    parsed = {
        suite: [Deviation(Result(one["expected"]), one["reason"], tuple(one["tests"])) for one in entries or ()]
        for suite, entries in document.items()
    }
    for suite, deviations in parsed.items():
        patterns = [pattern for deviation in deviations for pattern in deviation.tests]
        twice = {pattern for pattern in patterns if patterns.count(pattern) > 1}
        if twice:
            raise ValueError(f"{suite}: listed twice: {', '.join(sorted(twice))}")
        if any(deviation.expected is Result.PASSED or not deviation.reason.strip() for deviation in deviations):
            raise ValueError(f"{suite}: a deviation is a test that fails or is skipped, and it has a reason")
    return parsed


def compare(outcomes: Mapping[str, Outcome], deviations: Iterable[Deviation], at_least: int) -> list[str]:
    """What is not as expected, one sentence each; `at_least` tests have to have passed."""
    deviations = list(deviations)
    wrong = []
    for name, outcome in sorted(outcomes.items()):
        expected = next((one.expected for one in deviations if one.covers(name)), Result.PASSED)
        if outcome.result is not expected:
            wrong.append(f"{name}: {outcome.result}, expected to be {expected}. {outcome.message}".rstrip())
    for pattern in (pattern for one in deviations for pattern in one.tests):
        if not any(fnmatchcase(name, pattern) for name in outcomes):
            wrong.append(f"{pattern}: listed in deviations.yaml, and there is no such test")
    passed = count(outcomes, Result.PASSED)
    if passed < at_least:
        wrong.append(f"{passed} tests passed, and there have to be at least {at_least}")
    return wrong


def count(outcomes: Mapping[str, Outcome], result: Result) -> int:
    """How many tests ended so."""
    return sum(outcome.result is result for outcome in outcomes.values())


def of_junit(document: str) -> dict[str, Outcome]:
    """Outcomes in pytest's JUnit XML, by `module::class::test`; an error at the end of a test is a failure of it."""
    outcomes: dict[str, Outcome] = {}
    for case in ElementTree.fromstring(document).iter("testcase"):
        name = "::".join(part for part in (_module(case), _class(case), case.get("name", "")) if part)
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        skipped = case.find("skipped")
        if bad is not None:
            outcomes[name] = Outcome(Result.FAILED, _first_line(bad.get("message", "")))
        elif skipped is not None:
            outcomes.setdefault(name, Outcome(Result.SKIPPED, _first_line(skipped.get("message", ""))))
        else:
            outcomes.setdefault(name, Outcome(Result.PASSED))
    return outcomes


def _module(case: ElementTree.Element) -> str:
    """`test_slo` of a case in `test/functional/test_slo.py`."""
    return PurePath(case.get("file", "")).stem


def _class(case: ElementTree.Element) -> str:
    """`TestSlo` of a case whose class is called `test.functional.test_slo.TestSlo`, and nothing of a plain function."""
    name = case.get("classname", "").rpartition(".")[2]
    return "" if name == _module(case) else name


_OF_GO = {"pass": Result.PASSED, "fail": Result.FAILED, "skip": Result.SKIPPED}


def of_go(lines: Iterable[str]) -> dict[str, Outcome]:
    """Outcomes in what `go test -json` prints, by the test's name; a package that fails without a test is one, too."""
    outcomes: dict[str, Outcome] = {}
    packages: dict[str, Outcome] = {}
    said: dict[str, str] = {}
    for line in lines:
        event = json.loads(line) if line.startswith("{") else {}
        name, action = event.get("Test") or event.get("Package", ""), event.get("Action", "")
        if action == "output" and not event["Output"].lstrip().startswith(("===", "---")):
            said[name] = said.get(name, "") + event["Output"].strip() + " "
        elif action in _OF_GO:
            result = _OF_GO[action]
            message = "" if result is Result.PASSED else _last_words(said.get(name, ""))
            (outcomes if "Test" in event else packages)[name] = Outcome(result, message)
    if any(outcome.result is Result.FAILED for outcome in outcomes.values()):
        return outcomes
    return outcomes | {name: one for name, one in packages.items() if one.result is Result.FAILED}


_MESSAGE_CHARACTERS = 300


def _last_words(text: str) -> str:
    """The end of what a test has said, in characters that can be printed."""
    return "".join(character for character in text.strip() if character.isprintable())[-_MESSAGE_CHARACTERS:]


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0][:_MESSAGE_CHARACTERS]
