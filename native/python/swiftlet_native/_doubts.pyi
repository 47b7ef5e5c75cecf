"""The part of the treaty about partitions that may lack something; `swiftlet_native` has all of its names."""

from typing import final

@final
class Doubts:
    """Which partitions of a device may lack something that was acknowledged while the device could not hear of it.

    Nothing is in doubt at first. A proof counts only against doubts that are not younger than the epoch that was read
    before its comparison began.
    """

    def __new__(cls) -> Doubts:
        """Of one device."""

    def watch(self) -> None:
        """From now on the whole device is in doubt whenever the process has stood still. OSError without a thread."""

    def doubt_all(self) -> None:
        """The whole device is in doubt."""

    def doubt(self, places: list[tuple[int, int]], /) -> None:
        """These are in doubt: policy and partition; the whole device when they are too many."""

    def pending(self) -> tuple[int, float] | None:
        """The epoch, and the seconds since the youngest doubt began; None when there is no doubt."""

    def prove(self, epoch: int, places: list[tuple[int, int]], /) -> None:
        """These were compared since the epoch was read, and lack nothing."""

    def prove_all(self, epoch: int, /) -> None:
        """Nothing that belongs on the device lacks anything."""

    def has(self, policy: int, partition: int, /) -> bool:
        """Whether a partition may lack something."""

    def counts(self) -> tuple[bool, int, int]:
        """Whether the whole device is in doubt, partitions proved since then, partitions in doubt by themselves."""
