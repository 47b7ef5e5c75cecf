"""The limits of an account and of its containers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_LEVEL = "default"
"""The level of accounts that have no assignment."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one level; None stands for no limit."""

    level: str
    container_count: int | None = None
    """Containers that an account may have."""
    object_count: int | None = None
    """Objects that each container may hold."""
    container_usage_bytes: int | None = None
    """Bytes that each container may hold."""
    account_object_count: int | None = None
    """Objects that all containers of an account may hold together."""
    account_usage_bytes: int | None = None
    """Bytes that all containers of an account may hold together."""

    @property
    def unlimited(self) -> bool:
        """Whether nothing is limited, so that no usage has to be known."""
        return all(getattr(self, name) is None for name in LIMITS)


LIMITS = (
    "container_count",
    "object_count",
    "container_usage_bytes",
    "account_object_count",
    "account_usage_bytes",
)
"""The names of a level's limits in the quota file."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """All levels, and the level of each account.

    With `precise` usage is read for every write; otherwise it may be remembered for `cache_s` seconds. Accounts are
    named as users write them, without the prefix of storage URLs.
    """

    levels: Mapping[str, Limits] = field(default_factory=lambda: {DEFAULT_LEVEL: Limits(DEFAULT_LEVEL)})
    assignments: Mapping[str, str] = field(default_factory=dict)
    precise: bool = False
    cache_s: int = 30

    def limits_of(self, account: str, chosen: str | None = None) -> Limits:
        """Return the limits of an account: those of its assigned level, else of the level `chosen` for it, else the
        default ones.

        A chosen level that does not exist any more counts as the default one.
        """
        level = self.assignments.get(account, chosen or DEFAULT_LEVEL)
        return self.levels.get(level, self.levels[DEFAULT_LEVEL])
