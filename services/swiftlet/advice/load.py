"""What is asked of a store at its busiest time, and what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from swiftlet.advice.sizes import Sizes


@dataclass(frozen=True, slots=True)
class Load:
    """Operations per second by `costs.OPERATIONS`, and what is stored before replicas.

    `sizes` are those of stored and written objects, `read_sizes` those of reads. `cached` is the share of reads that
    object servers find in memory. `growth` is how many times as much the store will hold at the end of its life.
    """

    per_second: Mapping[str, float]
    sizes: Sizes
    read_sizes: Sizes
    stored_bytes: float
    containers: int = 1
    cached: float = 0.0
    growth: float = 1.0

    @property
    def objects(self) -> float:
        """Return the number of objects stored."""
        return self.stored_bytes / self.sizes.mean if self.sizes.mean else 0.0

    def of(self, operation: str) -> float:
        """Return the operations of a kind per second."""
        return self.per_second.get(operation, 0.0)

    @property
    def writes(self) -> float:
        """Return the objects written per second."""
        return self.of("create") + self.of("update")

    @property
    def rows(self) -> float:
        """Return the changes of listings per second."""
        return self.writes + self.of("delete")

    @property
    def in_bytes(self) -> float:
        """Return the bytes that clients send per second."""
        return self.writes * self.sizes.mean

    @property
    def out_bytes(self) -> float:
        """Return the bytes that clients are sent per second."""
        return self.of("read") * self.read_sizes.mean
