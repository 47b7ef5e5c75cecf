"""Other observers' reports about nodes, and the verdict from them. Pure: times are passed in.

Fault model: an observer may be cut off, alone or with its neighbours, and take all others for dead. It may die after it
has said something. What it says may come late, twice or never. So
- nobody acts on one report: a second one must come from an observer in another failure domain, or be one's own;
- an observer that reaches at most half of its peers distrusts itself, says so, and is not listened to;
- reports of others alone never make a majority of the peers fail;
- an answer from the node itself counts more than the reports of all who have none;
- every report is forgotten after the suppression interval unless it is repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

MAX_OBSERVERS = 4096
"""The largest number of observers whose reports are kept."""
MAX_STATEMENTS = 1024
"""The largest number of nodes that one observer may declare failed; further ones are ignored."""
VOICES = 2
"""The number of failure domains that have to agree when this observer has not tried to reach the node itself."""


class Verdict(Enum):
    """How a node is to be treated."""

    WELL = "well"
    FAILED = "failed"
    """The node is left out until it is known to be back."""
    DOUBTED = "doubted"
    """The node does not answer, but hardly any node does: it is left out only for moments, and probed repeatedly."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of one node.

    `exceptions` tells that this observer's own exceptions have reached the limit, and `tried_in_vain` that its last
    attempt, not long ago, failed. `answered` tells that the node answered it since the last exceptions of others.
    `voices` counts the other failure domains that report it as failed. `cut_off` tells that this observer distrusts
    itself, and `majority` that with this node more than half of the peers would be failed.
    """

    exceptions: bool = False
    tried_in_vain: bool = False
    answered: bool = False
    voices: int = 0
    cut_off: bool = False
    majority: bool = False


def judge(evidence: Evidence) -> Verdict:
    """Return the verdict on a node."""
    if evidence.exceptions:
        return Verdict.DOUBTED if evidence.cut_off and not evidence.voices else Verdict.FAILED
    if evidence.answered or not evidence.voices:
        return Verdict.WELL
    if evidence.tried_in_vain:
        return Verdict.FAILED
    return Verdict.FAILED if evidence.voices >= VOICES and not evidence.majority else Verdict.WELL


def is_majority(failed: int, peers: int) -> bool:
    """Return whether this number is more than half."""
    return failed * 2 > peers


@dataclass(frozen=True, slots=True)
class Observer:
    """An observer that reports: the name of its node, and the failure domain of that node."""

    name: str
    domain: str


@dataclass(slots=True)
class _Said:
    domain: str
    failed: dict[str, float]
    """For each node the time of the last exception, on the clock of the reader."""


class Opinions:
    """The latest reports of all other observers."""

    def __init__(self, me: Observer, interval_s: float) -> None:
        """Reports from `me`, or from its failure domain, do not count as reports of another observer."""
        self._me = me
        self._interval_s = interval_s
        self._said: dict[str, _Said] = {}

    def hear(self, observer: Observer, failed: Mapping[str, float], now: float) -> None:
        """Record all nodes that an observer declares failed, each with the seconds since its last exception.

        This replaces its earlier reports. An empty report is also recorded for an observer that distrusts itself.
        """
        if observer.name == self._me.name:
            return
        self._said.pop(observer.name, None)
        if not failed or len(failed) > MAX_STATEMENTS or len(self._said) >= MAX_OBSERVERS:
            return
        self._said[observer.name] = _Said(
            observer.domain, {node: now - max(age_s, 0.0) for node, age_s in failed.items()}
        )

    def hear_failed(self, observer: Observer, node: str, now: float) -> None:
        """Process the notice that the observer has just declared a node failed."""
        said = self._said.get(observer.name)
        known = {} if said is None else {one: now - at for one, at in said.failed.items()}
        self.hear(observer, {**known, node: 0.0}, now)

    def hear_well(self, observer: str, node: str) -> None:
        """Process the notice that the node answers that observer again."""
        if observer in self._said:
            self._said[observer].failed.pop(node, None)

    def forget(self, observer: str) -> None:
        """Forget the reports of an observer that has left or is cut off itself."""
        self._said.pop(observer, None)

    def keep(self, observers: frozenset[str]) -> None:
        """Forget the reports of all others."""
        for observer in self._said.keys() - observers:
            del self._said[observer]

    def voices(self, node: str, now: float) -> int:
        """Return how many failure domains, other than this observer's, say that a node failed."""
        return len({said.domain for said, _ in self._against(node, now)} - {self._me.domain})

    def last(self, node: str, now: float) -> float | None:
        """Return the time of the latest exception in any report."""
        return max((at for _, at in self._against(node, now)), default=None)

    def nodes(self, now: float) -> set[str]:
        """Return all nodes that any observer says have failed."""
        return {node for said in self._said.values() for node, at in said.failed.items() if self._counts(at, now)}

    def _against(self, node: str, now: float) -> Iterable[tuple[_Said, float]]:
        for said in self._said.values():
            at = said.failed.get(node)
            if at is not None and self._counts(at, now):
                yield said, at

    def _counts(self, at: float, now: float) -> bool:
        return now - at < self._interval_s
