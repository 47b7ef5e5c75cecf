"""Sequences that decode all their values when the first one is read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TypeVar, overload

T = TypeVar("T")


class Lazy(Sequence[T]):
    """A sequence that is equal to any other one of equal values."""

    __slots__ = ("_count", "_values")

    def __init__(self, count: int) -> None:
        """`count` is the number of values."""
        self._count = count
        self._values: tuple[T, ...] | None = None

    @abstractmethod
    def _make(self) -> tuple[T, ...]:
        """Return all values, decoded. It is called once, when the first value is read."""

    @property
    def values(self) -> tuple[T, ...]:
        """All values; they are decoded at the first access."""
        if self._values is None:
            self._values = self._make()
        return self._values

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...

    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self.values[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self.values)

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        """Return whether `other` has the same values in the same order."""
        return isinstance(other, Sequence) and self.values == tuple(other)

    def __hash__(self) -> int:
        return hash(self.values)
