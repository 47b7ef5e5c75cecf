"""Sequences whose values are made when somebody looks at one, all at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TypeVar, overload

T = TypeVar("T")


class Lazy(Sequence[T]):
    """Equal to any sequence of equal values."""

    __slots__ = ("_count", "_values")

    def __init__(self, count: int) -> None:
        """`count` is the number of values."""
        self._count = count
        self._values: tuple[T, ...] | None = None

    @abstractmethod
    def _make(self) -> tuple[T, ...]:
        """Decode and return all values; called once, when the first one is asked for."""

    @property
    def values(self) -> tuple[T, ...]:
        """All of them, made if need be."""
        if self._values is None:
            self._values = self._make()
        return self._values

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...

    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        """One or some of them."""
        return self.values[index]

    def __iter__(self) -> Iterator[T]:
        """One after the other."""
        return iter(self.values)

    def __len__(self) -> int:
        """How many there are."""
        return self._count

    def __eq__(self, other: object) -> bool:
        """Whether the values are the same, in the same order."""
        return isinstance(other, Sequence) and self.values == tuple(other)

    def __hash__(self) -> int:
        """Return the hash of the tuple."""
        return hash(self.values)
