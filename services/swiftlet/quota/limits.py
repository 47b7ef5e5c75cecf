"""What an account and its containers may hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_LEVEL = "default"
"""The level of accounts that have no assignment."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one level; None is no limit."""

    level: str
    container_count: int | None = None
    """Containers that an account may have."""
    object_count: int | None = None
    """Objects that each container may hold."""
    container_usage_bytes: int | None = None
    """Bytes that each container may hold."""

    @property
    def unlimited(self) -> bool:
        """Whether nothing is limited, so that no usage need be known."""
        return self.container_count is None and self.object_count is None and self.container_usage_bytes is None


@dataclass(frozen=True, slots=True)
class Quotas:
    """All levels, and which account has which.

    `precise`: usage is to be asked for on every write; otherwise it may be remembered for `cache_s` seconds. Accounts
    are named as users write them, without the prefix of storage URLs.
    """

    levels: Mapping[str, Limits] = field(default_factory=lambda: {DEFAULT_LEVEL: Limits(DEFAULT_LEVEL)})
    assignments: Mapping[str, str] = field(default_factory=dict)
    precise: bool = False
    cache_s: int = 30

    def limits_of(self, account: str) -> Limits:
        """What counts for an account: its level, else the default one."""
        return self.levels[self.assignments.get(account, DEFAULT_LEVEL)]
