"""The standing of local devices in their rings: what they hold and lack, and since when nothing is left to do. No I/O.

The fields are those of `/statusz`, which `docs/wire.md` defines. Rounds report here what they found. At most a few
small numbers are kept per partition, and none for a partition in which nothing is left to do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from swiftlet.ring.lookup import Ring
from swiftlet.sync.planning.regions import LeftToDo, RegionStanding, compared, together


class Standing:
    """The standing of one device in one ring."""

    def __init__(self) -> None:
        self.held = 0
        self.misplaced = 0
        self.ring_version = 0
        self.synced_at_s: float | None = None
        self.empty_since_s: float | None = None
        """When the first of the latest, unbroken series of rounds ended that found nothing on the device; None without
        one.
        """
        self.regions: dict[str, RegionStanding] = {}
        """What the device and those of each other region have in common, as of the last whole round."""
        self._region = ""
        self._ring: Ring | None = None
        self._behind: dict[int, int] = {}
        self._unsent: dict[int, int] = {}
        self._unchecked: set[int] = set()
        self._concerned: set[int] = set()
        self.proved: set[int] = set()
        """Partitions that were compared with all peers since the round began, and lack nothing here."""

    @property
    def behind(self) -> int:
        """How many records this device lacks that a peer has."""
        return sum(self._behind.values())

    @property
    def unchecked(self) -> int:
        """How many partitions could not be compared with all other primaries."""
        return len(self._unchecked)

    @property
    def left(self) -> LeftToDo:
        """What is left to do in the device's partitions, whichever peer it is about."""
        partitions = self._behind.keys() | self._unsent.keys() | self._unchecked
        return LeftToDo(partitions, self.behind + sum(self._unsent.values()))

    @property
    def is_proved(self) -> bool:
        """Whether all partitions of the round are in `proved`."""
        return self._concerned <= self.proved

    def is_checked(self, partition: int) -> bool:
        """Return whether a partition was compared with all peers when it was last looked at, under this ring."""
        return self._ring is not None and partition not in self._unchecked

    def begin(self, ring: Ring, held: Collection[int], misplaced: int, assigned: Iterable[int]) -> None:
        """Begin a round of a device that holds some partitions; the ring puts the `assigned` ones here.

        When the ring has changed, no partition counts as checked.
        """
        concerned = set(held) | set(assigned)
        self._concerned, self.proved = concerned, set()
        self.held, self.misplaced = len(held), misplaced
        if held:
            self.empty_since_s = None
        if ring is not self._ring:
            self._ring, self._unchecked = ring, set(concerned)
        self._unchecked &= concerned
        for found in (self._behind, self._unsent):
            for partition in found.keys() - concerned:
                del found[partition]

    def lacks_many(self, lacking: Mapping[int, int], partitions: Iterable[int]) -> None:
        """Record how many records an unfinished comparison has found to be lacking here, by partition."""
        for partition in partitions:
            _set(self._behind, partition, lacking[partition])
            if lacking[partition]:
                self.proved.discard(partition)

    def compared(self, partition: int, *, behind: int = 0, unsent: int = 0, checked: bool = True) -> None:
        """Record the comparison of a partition.

        `behind` counts records still lacking here, `unsent` those still lacking at peers; `checked` tells that it was
        compared with all peers.
        """
        _set(self._behind, partition, behind)
        _set(self._unsent, partition, unsent)
        (self._unchecked.discard if checked else self._unchecked.add)(partition)
        (self.proved.add if checked and not behind else self.proved.discard)(partition)

    def compared_all(self, partitions: Collection[int], *, checked: bool) -> None:
        """Record partitions in which nothing is left to do; without `checked` they could not be compared with all
        peers.
        """
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
        """Record that the device could not be asked what it holds."""
        self.empty_since_s = None
        self._unchecked.update(assigned)

    def end(self, ring: Ring, began_s: float, held: int, misplaced: int, ended_s: float) -> None:
        """Record the end of a round that looked at every partition under one ring.

        `began_s` and `ended_s` are in seconds since the epoch. `held` counts the partitions on the device, `misplaced`
        those of them that the ring puts elsewhere.
        """
        self.held, self.misplaced, self.ring_version = held, misplaced, ring.version
        if held:
            self.empty_since_s = None
        elif self.empty_since_s is None:
            self.empty_since_s = ended_s
        if not (self._behind or self._unsent or self._unchecked or misplaced):
            self.synced_at_s = began_s

    def compared_regions(self, region: str, began_s: float, left: Mapping[str, LeftToDo]) -> None:
        """Record what a whole round of a device in `region` that began at `began_s` has left to do with the devices of
        all other regions.
        """
        self._region = region
        self.regions = compared(self.regions, left, began_s)

    def fields(self) -> dict[str, object]:
        """Return the fields of the status report; `region` and `regions` only where the ring has several."""
        regions = {name: region.fields() for name, region in self.regions.items()}
        return {
            "held": self.held,
            "misplaced": self.misplaced,
            "behind": self.behind,
            "unchecked": self.unchecked,
            "syncedAt": self.synced_at_s,
            "emptySince": self.empty_since_s,
            "ringVersion": self.ring_version,
            **({"region": self._region, "regions": regions} if regions else {}),
        }


def _set(counts: dict[int, int], partition: int, count: int) -> None:
    if count:
        counts[partition] = count
    else:
        counts.pop(partition, None)


class Standings:
    """The standings of all local devices in all rings."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], Standing] = {}

    def of(self, device: str, policy: int) -> Standing:
        """Return the standing of a device (by its name in the ring) in the ring of a policy, a new one if there is
        none.
        """
        return self._known.setdefault((device, policy), Standing())

    def keep(self, policy: int, devices: Collection[str]) -> None:
        """Remove the standings of devices that are no longer in the ring of a policy."""
        self._known = {key: found for key, found in self._known.items() if key[1] != policy or key[0] in devices}

    def unreadable(self, device: str, policy: int, assigned: Iterable[int]) -> None:
        """Record that a device could not be asked what it holds. A device without any standing stays without one."""
        if (device, policy) in self._known:
            self._known[device, policy].unreadable(assigned)

    def regions(self) -> dict[tuple[int, str], RegionStanding]:
        """Return what all local devices and those of another region have in common, by policy and region."""
        found: dict[tuple[int, str], list[RegionStanding]] = {}
        for (_, policy), standing in self._known.items():
            for region, one in standing.regions.items():
                found.setdefault((policy, region), []).append(one)
        return {key: together(ones) for key, ones in found.items()}

    def report(self, ring_name: Callable[[int], str]) -> dict[str, object]:
        """Return the fields of the status report by device and ring; `ring_name` returns the name of a
        policy's ring.
        """
        devices: dict[str, dict[str, object]] = {}
        for (device, policy), standing in self._known.items():
            devices.setdefault(device, {})[ring_name(policy)] = standing.fields()
        return {device: {"rings": rings} for device, rings in devices.items()}
