"""What a ring is made of: devices, the limits of the format, and the errors.

Device ids are small integers given out by the builder and never used twice within one ring's life, so that an
old ring, a log line or a failure table can't mistake one device for another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

MAX_DEVICES = 0xFFFF
"""Ids are stored in 16 bits; the highest value stands for "nobody"."""
NOBODY = 0xFFFF
"""The value of a slot in the assignment table while no device holds that replica."""
MAX_PART_POWER = 32
MAX_REPLICAS = 32
DIGEST_SIZE = 16
"""Bytes in the digest of a name."""


class RingError(Exception):
    """A ring can't be built as asked; `str(error)` names the field and what to do about it."""


class RingFormatError(RingError):
    """Bytes that are no ring, a damaged ring, or one of another format version."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device: where it is reached, where it stands, and how much of the ring it should hold.

    `host` is a stable DNS name or address of the server, `device` the device's name on that server, `name` a
    unique name for people. `region`, `zone` and `node` are the failure domains from the widest to the
    narrowest, as in Kubernetes topology labels; equal zone names in two regions are two zones. `weight` is
    relative to the other devices' (by habit gigabytes or terabytes); 0 means that the device is being drained.
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
        """`host:port/device`, the way people write it."""
        return f"{self.host}:{self.port}/{self.device}"


def check_weight(weight: float, name: str) -> None:
    """RingError unless `weight` is finite and not negative."""
    if not (math.isfinite(weight) and weight >= 0):
        raise RingError(f"weight {weight} of device {name!r} must be 0 (drain) or a positive number")


def check_shape(part_power: int, replicas: float) -> None:
    """RingError unless a ring can have this part power and this (possibly fractional) number of replicas."""
    if not 1 <= part_power <= MAX_PART_POWER:
        raise RingError(f"part_power {part_power} is outside 1..{MAX_PART_POWER}")
    if not 1 <= replicas <= MAX_REPLICAS:
        raise RingError(f"replicas {replicas} is outside 1..{MAX_REPLICAS}")


def row_lengths(part_power: int, replicas: float) -> list[int]:
    """How many partitions have a first, second, ... replica.

    All rows are full except that of a fractional part: with 2.25 replicas a quarter of the partitions, those
    with the lowest numbers, have a third one.
    """
    partitions = 1 << part_power
    whole = int(replicas)
    lengths = [partitions] * whole
    rest = round((replicas - whole) * partitions)
    return [*lengths, rest] if rest else lengths


def replica_classes(lengths: list[int]) -> list[tuple[int, int, int]]:
    """Ranges of partitions with equally many replicas: (first partition, end, replicas), for `row_lengths`."""
    if lengths[-1] == lengths[0]:
        return [(0, lengths[0], len(lengths))]
    return [(0, lengths[-1], len(lengths)), (lengths[-1], lengths[0], len(lengths) - 1)]
