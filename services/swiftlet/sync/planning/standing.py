"""How the local devices stand in their rings: what they hold, lack, and since when nothing was left to do.

`docs/wire.md` defines the words, which are those of `/statusz`. No I/O: rounds tell what they found. Per
partition at most a few small numbers are kept, and none for one that is in order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from swiftlet.ring.lookup import Ring


class Standing:
    """One device in one ring."""

    def __init__(self) -> None:
        """Before the first round."""
        self.held = 0
        self.misplaced = 0
        self.ring_version = 0
        self.synced_at_s: float | None = None
        self.empty_since_s: float | None = None
        """The end of the first of an unbroken series of rounds that found nothing on the device."""
        self._ring: Ring | None = None
        self._behind: dict[int, int] = {}
        self._unsent: dict[int, int] = {}
        self._unchecked: set[int] = set()
        self._concerned: set[int] = set()
        self.proved: set[int] = set()
        """Partitions that were compared with all peers since the round began, and lack nothing here."""

    @property
    def behind(self) -> int:
        """Records that a peer has and this device lacks."""
        return sum(self._behind.values())

    @property
    def unchecked(self) -> int:
        """Partitions of which not all other primaries could be compared."""
        return len(self._unchecked)

    @property
    def is_proved(self) -> bool:
        """Whether that is so of all that the round began with."""
        return self._concerned <= self.proved

    def is_checked(self, partition: int) -> bool:
        """Whether a partition was compared with all peers when it was last looked at, under this ring."""
        return self._ring is not None and partition not in self._unchecked

    def begin(self, ring: Ring, held: Collection[int], misplaced: int, assigned: Iterable[int]) -> None:
        """A round begins with what is held; `assigned` are the partitions that the ring puts here.

        Under another ring than before nothing counts as checked.
        """
        concerned = set(held) | set(assigned)
        self._concerned, self.proved = concerned, set()
        self.held, self.misplaced = len(held), misplaced
        if held:
            self.empty_since_s = None
        if ring is not self._ring:
            self._ring, self._unchecked = ring, concerned
        self._unchecked &= concerned
        for found in (self._behind, self._unsent):
            for partition in found.keys() - concerned:
                del found[partition]

    def lacks_many(self, lacking: Mapping[int, int], partitions: Iterable[int]) -> None:
        """A comparison that is still going on found that many records to be lacking in these partitions."""
        for partition in partitions:
            _set(self._behind, partition, lacking[partition])
            if lacking[partition]:
                self.proved.discard(partition)

    def compared(self, partition: int, *, behind: int = 0, unsent: int = 0, checked: bool = True) -> None:
        """A partition was compared: what is still lacking here, what is still lacking there, whether with all peers."""
        _set(self._behind, partition, behind)
        _set(self._unsent, partition, unsent)
        (self._unchecked.discard if checked else self._unchecked.add)(partition)
        (self.proved.add if checked and not behind else self.proved.discard)(partition)

    def compared_all(self, partitions: Collection[int], *, checked: bool) -> None:
        """Partitions of which nothing was found to be lacking on either side were compared, or could not be."""
        for found in (self._behind, self._unsent):
            for partition in found.keys() & partitions:
                del found[partition]
        if checked:
            self._unchecked.difference_update(partitions)
            self.proved.update(partitions)
        else:
            self._unchecked.update(partitions)
            self.proved.difference_update(partitions)

    def unreadable(self, assigned: Iterable[int]) -> None:
        """The device could not be asked what it holds."""
        self.empty_since_s = None
        self._unchecked.update(assigned)

    def end(self, ring: Ring, began_s: float, held: int, misplaced: int, ended_s: float) -> None:
        """A round that looked at every partition under one ring has ended, with that much on the device."""
        self.held, self.misplaced, self.ring_version = held, misplaced, ring.version
        if held:
            self.empty_since_s = None
        elif self.empty_since_s is None:
            self.empty_since_s = ended_s
        if not (self._behind or self._unsent or self._unchecked or misplaced):
            self.synced_at_s = began_s

    def fields(self) -> dict[str, object]:
        """Return the fields of the status report."""
        return {
            "held": self.held,
            "misplaced": self.misplaced,
            "behind": self.behind,
            "unchecked": self.unchecked,
            "syncedAt": self.synced_at_s,
            "emptySince": self.empty_since_s,
            "ringVersion": self.ring_version,
        }


def _set(counts: dict[int, int], partition: int, count: int) -> None:
    if count:
        counts[partition] = count
    else:
        counts.pop(partition, None)


class Standings:
    """All local devices in all rings."""

    def __init__(self) -> None:
        """None is known yet."""
        self._known: dict[tuple[str, int], Standing] = {}

    def of(self, device: str, policy: int) -> Standing:
        """A device's (by its name in the ring) in a policy's ring; made if need be."""
        return self._known.setdefault((device, policy), Standing())

    def keep(self, policy: int, devices: Collection[str]) -> None:
        """Forget devices that are no longer in a policy's ring."""
        self._known = {key: found for key, found in self._known.items() if key[1] != policy or key[0] in devices}

    def unreadable(self, device: str, policy: int, assigned: Iterable[int]) -> None:
        """A device could not be asked what it holds; one that never could has no report."""
        if (device, policy) in self._known:
            self._known[device, policy].unreadable(assigned)

    def report(self, ring_name: Callable[[int], str]) -> dict[str, object]:
        """By device and ring; `ring_name` names a policy's ring."""
        devices: dict[str, dict[str, object]] = {}
        for (device, policy), standing in self._known.items():
            devices.setdefault(device, {})[ring_name(policy)] = standing.fields()
        return {device: {"rings": rings} for device, rings in devices.items()}
