"""What there is to build a store of: disks, nodes, zones, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from swiftlet.advice.errors import AdviceError


@dataclass(frozen=True, slots=True)
class Disk:
    """A kind of disk: the volumes of one StorageClass. `price` is of one disk."""

    name: str
    size_bytes: float
    read_bytes_per_s: float
    write_bytes_per_s: float
    reads_per_s: float
    """Random reads of 4 KiB, many at a time."""
    sync_s: float
    """Until a small write is durable."""
    class_name: str | None = None
    price: float | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A kind of machine. `price` is without disks; `most_disks` is what it has room for, 0 for a machine without."""

    name: str
    processors: float
    memory_bytes: float
    network_bytes_per_s: float
    """So much can come in, and as much go out at the same time."""
    disk: Disk | None = None
    most_disks: int = 0
    price: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hardware:
    """All that may be used. `speed` is that of a processor, compared with the one that unit costs were measured on."""

    nodes: tuple[Node, ...]
    database_disks: tuple[Disk, ...]
    """Candidates for container servers."""
    zones: tuple[str, ...] = ()
    balancer_bytes_per_s: float | None = None
    speed: float = 1.0

    @property
    def has_prices(self) -> bool:
        """Return whether prices are given. Raises AdviceError when some are and some are not."""
        priced = {f"nodes.{one.name}.price": one.price for one in self.nodes}
        disks = {one.disk.name: one.disk for one in self.nodes if one.disk is not None}
        priced |= {f"disks.{one.name}.price": one.price for one in (*disks.values(), *self.database_disks)}
        missing = sorted(name for name, price in priced.items() if price is None)
        if missing and len(missing) < len(priced):
            raise AdviceError(f"hardware.{missing[0]}: give prices of all nodes and disks, or of none")
        return not missing
