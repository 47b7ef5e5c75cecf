"""How an object is kept: in copies, or in fragments of which some are enough to read it."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Redundancy:
    """An object is kept in so many pieces, each on a device of its own, and `data` of them are enough to read it.

    With copies `data` is 1. `pieces` need not be whole: a ring may have 2.5 copies of each object on average.
    """

    pieces: float
    data: int = 1

    @property
    def is_coded(self) -> bool:
        """Return whether pieces are fragments of an erasure coding."""
        return self.data > 1

    @property
    def bytes_per_byte(self) -> float:
        """Return the bytes that all pieces of an object take for each of its bytes."""
        return self.pieces / self.data

    @property
    def may_be_lost(self) -> int:
        """Return how many devices of an object may be lost."""
        return math.floor(self.pieces) - self.data

    @property
    def quorum(self) -> int:
        """Return the devices that a write waits for."""
        return self.data + 1 if self.is_coded else math.floor(self.pieces) // 2 + 1

    @property
    def least_pods(self) -> int:
        """Return the pods that it takes to have no more pieces of an object on one of them than may be lost; of
        copies each is on a pod of its own.
        """
        if not self.is_coded:
            return math.ceil(self.pieces)
        return math.ceil(self.pieces / max(1, self.may_be_lost))

    def places_lost(self, places: int) -> int:
        """Return how many of so many nodes or zones may be lost when pieces lie as evenly over them as can be."""
        if places < 1:
            return 0
        return min(places - 1, self.may_be_lost // math.ceil(self.pieces / places))

    def __str__(self) -> str:
        if not self.is_coded:
            return f"{self.pieces:g} copies"
        return f"{self.data}+{self.pieces - self.data:g} fragments, {self.bytes_per_byte:.3g} bytes for each byte"


def copies(replicas: float) -> Redundancy:
    """Return the redundancy of so many copies."""
    return Redundancy(replicas)


def coded(data: int, parity: int) -> Redundancy:
    """Return the redundancy of an erasure coding with so many fragments of data and of parity."""
    return Redundancy(data + parity, data)
