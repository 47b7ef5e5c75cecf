"""The state of a container that moves from one storage policy to another, and what follows from it.

It is a metadata item of the container's database, which replicas merge as any other. Its value is text, for example
`from=0; to=1; phase=moving; since=1700000000.00000_0000; created=1600000000.00000_0000`. Fields that are not known here
are ignored, so that later releases can add some.

See `docs/design/2026-11-29-policy-move.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from swiftlet.timestamp import Timestamp

ITEM = "X-Container-Sysmeta-Policy-Move"
"""The name of the metadata item."""
_HIGHEST = 65_535
_LONGEST = 512
_FIELDS = ("from", "to", "phase", "since", "created")


class Phase(Enum):
    """How far the move of a container is. Two phases that follow each other may be in force side by side."""

    ANNOUNCED = "announced"
    """PUTs go to the source; reads look in both policies, so that proxies may begin to write to the target."""
    MOVING = "moving"
    """PUTs go to the target, and objects are moved there."""
    SETTLED = "settled"
    """A pass has found nothing in the source; reads look there only for what the target does not have."""


_NEXT = {Phase.ANNOUNCED: Phase.MOVING, Phase.MOVING: Phase.SETTLED, Phase.SETTLED: None}


@dataclass(frozen=True, slots=True)
class PolicyMove:
    """A container's move between policies, by their indexes.

    `since` is when the phase began. `created` is when the container was created that the state is about: one that was
    deleted and created again has nothing to do with it.
    """

    source: int
    target: int
    phase: Phase
    since: Timestamp
    created: Timestamp
    known: Timestamp | None = None
    """Since when all primary replicas of the database have shown the phase, once a mover has seen that."""
    announced: Timestamp | None = None
    """When the move was announced, in later phases."""

    @property
    def policy(self) -> int:
        """Return the policy that the container has by this: that of new objects."""
        return self.source if self.phase is Phase.ANNOUNCED else self.target

    @property
    def used(self) -> frozenset[int]:
        """Return the policies that can't be retired because of the container."""
        return frozenset({self.target} if self.phase is Phase.SETTLED else {self.source, self.target})

    def text(self) -> str:
        """Return the value of the metadata item."""
        values = (self.source, self.target, self.phase.value, self.since.internal, self.created.internal)
        pieces = [f"{name}={value}" for name, value in zip(_FIELDS, values, strict=True)]
        more = ("known", self.known), ("announced", self.announced)
        return "; ".join([*pieces, *(f"{name}={value.internal}" for name, value in more if value is not None)])


def parse(text: str) -> PolicyMove:
    """Return the state that a metadata item has. Raises ValueError, which names the field and what it should be."""
    if len(text) > _LONGEST:
        raise ValueError(f"{ITEM} is longer than {_LONGEST} characters")
    fields: dict[str, str] = {}
    for piece in text.split(";"):
        name, equals, value = piece.strip().partition("=")
        if not equals or name in fields:
            raise ValueError(f"{ITEM}: {piece.strip()[:40]!r} is not a field such as from=0, given once")
        fields[name] = value
    if missing := [name for name in _FIELDS if name not in fields]:
        raise ValueError(f"{ITEM} lacks the field {missing[0]}")
    source, target = _index(fields, "from"), _index(fields, "to")
    if source == target:
        raise ValueError(f"{ITEM}: from and to are the same policy, {source}")
    try:
        phase = Phase(fields["phase"])
    except ValueError:
        known = ", ".join(one.value for one in Phase)
        raise ValueError(f"{ITEM}: phase is {fields['phase'][:40]!r}, not one of {known}") from None
    more = (_time(fields, name) if name in fields else None for name in ("known", "announced"))
    return PolicyMove(source, target, phase, _time(fields, "since"), _time(fields, "created"), *more)


def found(text: str | None) -> PolicyMove | None:
    """Return the state that a stored item has; None without one, and for one that can't be read."""
    if not text:
        return None
    try:
        return parse(text)
    except ValueError:
        return None


def of_container(text: str | None, created: Timestamp, deleted: Timestamp) -> PolicyMove | None:
    """Return the state that a stored item has, unless it is about an earlier container of the same name.

    The present one has been created at `created`, and one of the name was last deleted at `deleted`. A deletion that
    was undone is later than `created`.
    """
    move = found(text)
    return None if move is not None and move.created <= deleted < created else move


def check_step(
    policy: int, before: PolicyMove | None, after: PolicyMove | None, is_retired: Callable[[int], bool]
) -> None:
    """Raise ValueError unless a container of `policy` may come from one state to the other.

    Phases that do not follow each other must never be in force side by side, so none is left out, and only a move that
    was merely announced can be taken back. The source of an earlier move may still have objects of which no row tells
    until it is retired, and then nobody looks there any more, unless the next move is back to it.
    """
    if after is None:
        if before is not None and before.phase is not Phase.ANNOUNCED:
            raise ValueError(f"a move that is {before.phase.value} can't be taken back: both policies may have objects")
    elif before is None or (before.source, before.target) != (after.source, after.target):
        if before is not None and before.phase is not Phase.SETTLED:
            raise ValueError(f"its move from policy {before.source} to {before.target} is {before.phase.value}")
        if after.phase is not Phase.ANNOUNCED:
            raise ValueError(f"a move has to be announced before it is {after.phase.value}")
        now = policy if before is None else before.policy
        if after.source != now:
            raise ValueError(f"it has storage policy {now}, not {after.source}")
        if before is not None and before.source != after.target and not is_retired(before.source):
            raise ValueError(f"it has moved out of policy {before.source}, which has to be retired before it moves on")
    elif after.phase not in (before.phase, _NEXT[before.phase]):
        raise ValueError(f"its move is {before.phase.value}, after which it can't be {after.phase.value}")


def _index(fields: dict[str, str], name: str) -> int:
    value = fields[name]
    if not (value.isascii() and value.isdigit() and len(value) <= 5 and int(value) <= _HIGHEST):
        raise ValueError(f"{ITEM}: {name} is {value[:40]!r}, not the index of a storage policy")
    return int(value)


def _time(fields: dict[str, str], name: str) -> Timestamp:
    try:
        return Timestamp.parse(fields[name])
    except ValueError:
        raise ValueError(f"{ITEM}: {name} is {fields[name][:40]!r}, not a time such as 1700000000.00000") from None
