"""How troubles are worded: short sentences, equal ones together, with at most three names and the number of others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from swiftlet_operator.manifests import named
from swiftlet_operator.trouble.seen import Part

MAX_SENTENCE_CHARS = 300
MAX_TOLD = 3
"""How many groups of equal troubles a message has; of the others it gives the number."""
_MAX_SHARED_CHARS = 160
"""The largest number of characters of a sentence that is joined with others in a message."""
_CHANGING = re.compile(r"\d+\.\d+\.\d+\.\d+:\d+->|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22,}")
"""Matches the parts that differ in each attempt: local ports and uids."""
_PARTS = {
    "container": ("container server", "container servers"),
    "proxy": ("proxy", "proxies"),
    "metadata": ("metadata server", "metadata servers"),
    "redis": ("pod of Redis", "pods of Redis"),
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """What keeps a pod, a claim or a workload (`kind`) from getting on.

    `sentence` is what Kubernetes says, `advice` names the field to change.
    """

    cause: str
    part: Part
    kind: str
    name: str
    sentence: str
    advice: str

    @property
    def likeness(self) -> tuple[str, ...]:
        """Return a value that is equal for troubles that are told together."""
        own = self.name.partition("-")[2] if self.kind == "PersistentVolumeClaim" else self.name
        text = self.sentence.replace(self.name, "").replace(own, "")
        return self.cause, self.kind, _CHANGING.sub("", text), self.advice


@dataclass(frozen=True, slots=True)
class OnItsWay:
    """A pod that does not run yet though nothing is wrong; `doing` says what it does, for one subject and
    for several.
    """

    part: Part
    name: str
    doing: tuple[str, str]


def sentence(text: object) -> str:
    """Return another program's message, reduced to one line and to a limited length."""
    plain = " ".join(_CHANGING.sub("", str(text or "")).split()).rstrip(". ")
    return plain if len(plain) <= MAX_SENTENCE_CHARS else f"{plain[: MAX_SENTENCE_CHARS - 3]}..."


def groups(troubles: Iterable[Trouble]) -> list[list[Trouble]]:
    """Return equal troubles together, in the order of the first of each."""
    found: dict[tuple[str, ...], list[Trouble]] = {}
    for one in troubles:
        found.setdefault(one.likeness, []).append(one)
    return list(found.values())


def told(troubles: Iterable[Trouble]) -> str:
    """Return a message with who is in trouble, what Kubernetes says, and what to change."""
    found = groups(troubles)
    most = MAX_SENTENCE_CHARS if len(found) == 1 else _MAX_SHARED_CHARS
    texts = [_told(group, most) for group in found[:MAX_TOLD]]
    if len(found) > MAX_TOLD:
        texts.append(f"And {len(found) - MAX_TOLD} more causes, see `kubectl swiftlet health`.")
    return " ".join(texts)


def _told(group: Sequence[Trouble], most: int) -> str:
    first = group[0]
    said = first.sentence if len(first.sentence) <= most else f"{first.sentence[: most - 3]}..."
    return f"{first.cause} ({named([one.name for one in group])}): {said}. To do: {first.advice}."


def on_the_way(waiting: Iterable[OnItsWay], wanted: dict[Part, int]) -> str:
    """Return what pods are doing, by part; `wanted` has the number of pods that each part should have."""
    counts: dict[tuple[Part, tuple[str, str]], int] = {}
    for one in waiting:
        counts[one.part, one.doing] = counts.get((one.part, one.doing), 0) + 1
    texts = [
        f"{count} of {max(count, wanted.get(part, 0))} {_noun(part, max(count, wanted.get(part, 0)))} "
        f"{doing[0] if count == 1 else doing[1]}"
        for (part, doing), count in counts.items()
    ]
    return "; ".join(texts[: 2 * MAX_TOLD])


def _noun(part: Part, count: int) -> str:
    if part.pool is not None:
        return f"pod{'s' if count != 1 else ''} of pool {part.pool}"
    one, several = _PARTS.get(part.component, (f"pod of {part.component}", f"pods of {part.component}"))
    return one if count == 1 else several
