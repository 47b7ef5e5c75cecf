"""The spec of a StorageQuota: named levels of limits, and the level of each account."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from swiftlet.crd.base import NamedRef, Quantity, View
from swiftlet.quantities import quantity_bytes

DEFAULT_LEVEL = "default"
"""The level of accounts that have no assignment."""

LevelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$", max_length=63)]
Account = Annotated[str, Field(pattern=r"^[^:/\s]+$", max_length=128)]
Count = Annotated[int, Field(ge=0, le=9_007_199_254_740_992)]


class Level(View):
    """Named limits; None stands for no limit."""

    name: LevelName
    container_count: Count | None = None
    object_count: Count | None = None
    container_usage: Quantity | None = None
    account_object_count: Count | None = None
    account_usage: Quantity | None = None

    @property
    def container_usage_bytes(self) -> int | None:
        """Bytes that one container may hold; None stands for no limit."""
        return None if self.container_usage is None else quantity_bytes(self.container_usage)

    @property
    def account_usage_bytes(self) -> int | None:
        """Bytes that all containers of an account may hold together; None stands for no limit."""
        return None if self.account_usage is None else quantity_bytes(self.account_usage)


class Assignment(View):
    """The level that an account is assigned to."""

    account: Account
    level: LevelName


class StorageQuotaSpec(View):
    """The limits of a cluster's accounts and containers."""

    cluster_ref: NamedRef
    levels: Annotated[tuple[Level, ...], Field(min_length=1, max_length=32)]
    precise: bool = False
    cache_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    usage_seconds: Annotated[int, Field(ge=60, le=86_400)] = 300
    assignments: Annotated[tuple[Assignment, ...], Field(max_length=1000)] = ()

    def level_of(self, account: str) -> Level | None:
        """Return the limits of an account: those of its level, or else of the default level; None when
        neither exists.
        """
        name = next((entry.level for entry in self.assignments if entry.account == account), DEFAULT_LEVEL)
        return next((level for level in self.levels if level.name == name), None)
