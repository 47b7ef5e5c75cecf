"""The part of the treaty about what pairs of devices compare; `swiftlet_native` has all of its names."""

from collections.abc import Sequence
from typing import final

from swiftlet_native import Store

@final
class PairRoots:
    """The partitions that two devices share, with the roots of one of them; see "Pairs" in docs/sync.md."""

    def __new__(cls, members: Sequence[int], /) -> PairRoots:
        """All partitions are empty at first. ValueError unless they ascend."""

    def __len__(self) -> int: ...
    @property
    def members(self) -> list[int]:
        """The partitions."""

    def members_hash(self) -> bytes:
        """What `sync_members` returns for the partitions."""

    position: int | None
    """How far the caller has read its own list of changes, if it has one; None at first."""

    def put(self, partition: int, root: bytes, /) -> None:
        """Set the root of a partition, if it is one of these."""

    def refresh(self, store: Store, policy: int, /) -> None:
        """Read the roots that have changed in this store since the last time. Raises StoreError."""

    def hash(self, without: Sequence[int], /) -> bytes:
        """One hash over the numbers and roots of all partitions but these, which ascend."""

    def branches(self, start: int, end: int, nodes: Sequence[int], without: Sequence[int], limit: int, /) -> bytes:
        """The branches of the first of these nodes, up to `limit` of them, at least those of one node.

        `nodes` and `without` ascend; ValueError if there is no step from `start` to `end` bits.
        """
