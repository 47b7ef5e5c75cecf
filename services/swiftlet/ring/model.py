"""The parts of a ring: devices, the limits of the format, and the errors.

Device ids are small integers given out by the builder and never used twice within one ring's life, so that an old ring,
a log line or a failure table can't mistake one device for another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

MAX_DEVICES = 0xFFFF
"""The largest number of devices: ids have 16 bits, and the highest value stands for "nobody"."""
NOBODY = 0xFFFF
"""The value of a slot in the assignment table while no device holds that replica."""
MAX_PART_POWER = 32
MAX_REPLICAS = 32
DIGEST_SIZE = 16
"""Bytes in the digest of a name."""
WriteQuorum = Literal["majority", "local", "each-region"]
"""Which durable copies acknowledge a write: most of its replicas wherever they are, as many in the writer's region, or
most of the replicas in each region of the ring.
"""

MAX_CODED_PART_POWER = 27
"""The largest part power of a ring whose objects are coded: stores have 32 partitions for each of the ring's."""


class RingError(Exception):
    """A ring can't be built as requested; `str(error)` names the field and the fix."""


class RingFormatError(RingError):
    """The bytes are not a ring, or a damaged one, or one of another format version."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device: its address, its failure domains, and how much of the ring it should hold.

    `host` is a stable DNS name or address of the server, `device` the device's name on that server, `name` a unique
    name for people. `region`, `zone` and `node` are the failure domains from the widest to the narrowest, as in
    Kubernetes topology labels; equal zone names in two regions are two zones. `weight` is relative to that of other
    devices (usually gigabytes or terabytes); 0 means that the device is being drained.
    """

    id: int
    name: str
    host: str
    port: int
    device: str
    region: str
    zone: str
    node: str
    weight: float

    def __post_init__(self) -> None:
        """Refuse impossible values with a RingError that names the field."""
        if not 0 <= self.id < MAX_DEVICES:
            raise RingError(f"device id {self.id} is outside 0..{MAX_DEVICES - 1}")
        if not 1 <= self.port <= 0xFFFF:
            raise RingError(f"port {self.port} of device {self.name!r} is outside 1..65535")
        check_weight(self.weight, self.name)
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "str" and not (isinstance(value, str) and value and value.isprintable()):
                raise RingError(f"{field.name} {value!r} of device {self.name!r} must be a printable, non-empty string")

    @property
    def address(self) -> str:
        """Return `host:port/device`, the usual form of a device's address."""
        return f"{self.host}:{self.port}/{self.device}"


@dataclass(frozen=True, slots=True)
class Coding:
    """How objects are coded: `data` fragments with their bytes, `parity` fragments to restore others from, and the
    bytes of a cell, by which they are dealt out to the fragments.
    """

    data: int
    parity: int
    cell_bytes: int

    def __str__(self) -> str:
        return f"{self.data}+{self.parity}"

    @property
    def fragments(self) -> int:
        """Return how many fragments an object has, each on a device of its own: the ring's replicas."""
        return self.data + self.parity

    @property
    def quorum(self) -> int:
        """Return how many devices acknowledge a write: one more than are needed to read, and more than half.

        `native/crates/fragments/src/terms.rs` has the same rule.
        """
        return max(self.data + 1, self.fragments // 2 + 1)

    @property
    def holders(self) -> int:
        """Return how many places have copies of small objects, the first ones: so many that one is left when as many
        devices are lost as may be.

        `native/crates/fragments/src/forms.rs` has the same rule.
        """
        return max(3, self.parity + 1)

    def check_ring(self, part_power: int, replicas: float) -> None:
        """Raise RingError unless the ring of a policy with this coding can have this shape."""
        if replicas != self.fragments:
            raise RingError(
                f"replicas {replicas:g} of the ring do not fit the coding {self}: set replicas to {self.fragments}, "
                "one for each fragment"
            )
        if part_power > MAX_CODED_PART_POWER:
            raise RingError(
                f"part_power {part_power} of the ring is more than a policy with coding may have; make the ring with "
                f"{MAX_CODED_PART_POWER} at most"
            )


def check_weight(weight: float, name: str) -> None:
    """Raise RingError unless `weight` is finite and not negative."""
    if not (math.isfinite(weight) and weight >= 0):
        raise RingError(f"weight {weight} of device {name!r} must be 0 (drain) or a positive number")


def check_shape(part_power: int, replicas: float) -> None:
    """Raise RingError unless a ring can have this part power and this (possibly fractional) number of replicas."""
    if not 1 <= part_power <= MAX_PART_POWER:
        raise RingError(f"part_power {part_power} is outside 1..{MAX_PART_POWER}")
    if not 1 <= replicas <= MAX_REPLICAS:
        raise RingError(f"replicas {replicas} is outside 1..{MAX_REPLICAS}")


def row_lengths(part_power: int, replicas: float) -> list[int]:
    """Return how many partitions have a first, second, ... replica.

    All rows are full except that of a fractional part: with 2.25 replicas a quarter of the partitions, those with the
    lowest numbers, have a third one.
    """
    partitions = 1 << part_power
    whole = int(replicas)
    lengths = [partitions] * whole
    rest = round((replicas - whole) * partitions)
    return [*lengths, rest] if rest else lengths


def replica_classes(lengths: list[int]) -> list[tuple[int, int, int]]:
    """Return the ranges of partitions with equally many replicas, as (first partition, end, replicas), for
    `row_lengths`.
    """
    if lengths[-1] == lengths[0]:
        return [(0, lengths[0], len(lengths))]
    return [(0, lengths[-1], len(lengths)), (lengths[-1], lengths[0], len(lengths) - 1)]
