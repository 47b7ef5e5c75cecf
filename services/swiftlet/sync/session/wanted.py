"""The suffixes of partitions that a question about entries is about, as values or in the bytes of the question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from swiftlet.sync.session.lazy import Lazy
from swiftlet.transport.varints import Cursor

_SUFFIXES = tuple(f"{number:03x}" for number in range(4096))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Some suffixes of a partition, in ascending order."""

    partition: int
    suffixes: tuple[str, ...]


class PackedWanted(Lazy[Wanted]):
    """Suffixes of several partitions, as native code found them to differ; decoded when the first one is read."""

    __slots__ = ("_begin", "_ends", "_raw", "counts", "partitions")

    def __init__(
        self, partitions: Sequence[int], counts: Sequence[int], ends: Sequence[int], raw: bytes, begin: int = 0
    ) -> None:
        """For each partition, `counts` has the number of its suffixes and `ends` where they end in `raw`.

        The suffixes of the first partition begin at `begin`.
        """
        super().__init__(len(partitions))
        self.partitions = partitions
        self.counts = counts
        """How many suffixes of each partition are wanted."""
        self._ends = ends
        self._raw = raw
        self._begin = begin

    @property
    def suffixes(self) -> bytes:
        """The count of suffixes and the suffixes of each partition, encoded as in a message."""
        return self._raw[self._begin : self._ends[-1]] if self._ends else b""

    def _make(self) -> tuple[Wanted, ...]:
        cursor = Cursor(self.suffixes, "what is wanted")
        found = []
        for partition in self.partitions:
            suffixes, number = [], -1
            for _ in range(cursor.varint(len(_SUFFIXES))):
                number += 1 + cursor.varint(len(_SUFFIXES))
                suffixes.append(_SUFFIXES[number])
            found.append(Wanted(partition, tuple(suffixes)))
        return tuple(found)

    @overload
    def __getitem__(self, index: int) -> Wanted: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Wanted]: ...

    def __getitem__(self, index: int | slice) -> Wanted | Sequence[Wanted]:
        """Return the wanted suffixes of one partition, or a slice of partitions; a slice in steps of 1 stays packed."""
        if not isinstance(index, slice):
            return self.values[index]
        start, stop, step = index.indices(len(self))
        if step != 1:
            return self.values[index]
        begin = self._ends[start - 1] if start else self._begin
        return PackedWanted(
            self.partitions[start:stop], self.counts[start:stop], self._ends[start:stop], self._raw, begin
        )


def sizes_of(wanted: Sequence[Wanted]) -> Sequence[int]:
    """Return how many suffixes of each partition are wanted."""
    return wanted.counts if isinstance(wanted, PackedWanted) else [len(one.suffixes) for one in wanted]


def partitions_of(wanted: Sequence[Wanted]) -> Sequence[int]:
    """Return the partition of each item, in order."""
    return wanted.partitions if isinstance(wanted, PackedWanted) else [one.partition for one in wanted]
