"""How many fragments of objects are at their places, as the last complete round has seen it, and when all will be.

A partition stands where its least redundant object does: all objects that all places show alike are as redundant as
places could be compared. Objects are counted one by one only where places differ. A partition is counted by the first
of its places that can be asked. Fragments that other devices keep for a place count once they are there.

Small objects are counted as a partition of their own, and as objects with so many fragments that as many devices may be
lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from prometheus_client import Gauge

from swiftlet.ring.model import Coding
from swiftlet.sync.coded.views import Found, View

_PARTITIONS = Gauge(
    "swiftlet_replicator_coded_partitions",
    "Partitions with objects, by how many more fragments of their least redundant object are at their places than a "
    'read takes; "short" are those of which too few are. Each is counted by one replicator.',
    ["policy", "redundant"],
)
_OBJECTS = Gauge(
    "swiftlet_replicator_coded_objects",
    "Objects that places show differently, by how many more fragments of them are at their places than a read takes.",
    ["policy", "redundant"],
)
SHORT = "short"
"""What has fewer fragments than a read takes."""


@dataclass(slots=True)
class Tally:
    """The partitions and objects of one policy in one round."""

    coding: Coding
    partitions: Counter[int] = field(default_factory=Counter)
    """Partitions with objects, by the number of places that show their least redundant one."""
    objects: Counter[int] = field(default_factory=Counter)
    """Objects that not all places show, by the number of those that do."""
    is_complete: bool = True
    """Whether nothing was left out for a failure."""

    def add(self, view: View, found: Found) -> None:
        """Count a partition, unless another replicator does, and what was found where its places differ."""
        if view.is_first and not (view.is_equal and view.is_empty):
            self.partitions[min([view.reached, *found.objects])] += 1
            self.objects.update(found.objects)

    def add_whole(self, partitions: int) -> None:
        """Count partitions with objects of which all places show the same, and the local device has the first place."""
        self.partitions[self.coding.fragments] += partitions

    def add_copies(self, least: int, objects: Sequence[int]) -> None:
        """Count a partition's small objects: how many copies its least redundant one has at its places, and how many
        each one has that not all places show.
        """
        self.partitions[self._fragments_like(least)] += 1
        self.objects.update(map(self._fragments_like, objects))

    def _fragments_like(self, copies: int) -> int:
        """Return with how many fragments an object is as redundant as with so many copies."""
        return min(self.coding.data + copies - 1, self.coding.fragments)

    def fields(self) -> dict[str, object]:
        """Return the fields of the status report."""
        coding = self.coding
        return {
            "data": coding.data,
            "parity": coding.parity,
            "partitions": by_fragments(coding, self.partitions),
            "objects": by_fragments(coding, self.objects),
        }

    def publish(self, policy: str) -> None:
        """Set the gauges of a policy to these counts."""
        for gauge, counts in ((_PARTITIONS, self.partitions), (_OBJECTS, self.objects)):
            named = by_fragments(self.coding, counts)
            for name, fragments in _names(self.coding):
                redundant = SHORT if fragments < self.coding.data else str(fragments - self.coding.data)
                gauge.labels(policy, redundant).set(named[name])


def _names(coding: Coding) -> Iterable[tuple[str, int]]:
    """Yield what numbers of fragments are called, and the numbers, the largest first."""
    for fragments in range(coding.fragments, coding.data - 1, -1):
        yield str(fragments), fragments
    yield SHORT, coding.data - 1


def by_fragments(coding: Coding, counts: Counter[int]) -> dict[str, int]:
    """Return counts by the number of fragments as a text; those below what a read takes are `SHORT`."""
    found = {name: counts[fragments] for name, fragments in _names(coding)}
    found[SHORT] = sum(count for fragments, count in counts.items() if fragments < coding.data)
    return found
