"""What an object is whose bytes a device has in a pack: asked of the devices of all places, as a reader does.

Fault model: as `swiftlet.placement.coded`. As many devices as there are parity fragments may be away.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from swiftlet.boundaries.coded import PLACES, CodedPlaces, CodedTransport, Refused, TooFewFragments
from swiftlet.errors import Unavailable
from swiftlet.model import ObjectInfo, ObjectKey
from swiftlet.placement.coded import Codings
from swiftlet.placement.rings import ObjectRings


class PackedObjects:
    """Describes small objects of policies with erasure coding to the devices that have only references to them."""

    def __init__(self, rings: ObjectRings, transport: CodedTransport, codings: Codings) -> None:
        """`rings` and `codings` are those of the policies."""
        self._rings = rings
        self._transport = transport
        self._codings = codings

    async def head(self, key: ObjectKey) -> ObjectInfo:
        """Return the description of the newest version, with `/account/container/object` as name, by the key of its
        copies in a device's store. Raises NotFound and Unavailable.
        """
        ring, coding = self._rings.objects(key.policy), self._codings(key.policy)
        if coding is None:
            raise Unavailable(f"storage policy {key.policy} has no erasure coding here")
        partition = key.partition // PLACES
        if partition >= ring.partition_count or ring.replica_count != coding.fragments:
            raise Unavailable(f"storage policy {key.policy}: the ring does not have the object's partition")
        places = CodedPlaces.in_ring(replace(key, partition=partition), coding, ring, coding.parity)
        first = list(range(coding.holders))
        random.shuffle(first)
        first += range(coding.holders, coding.fragments)
        try:
            stream = await self._transport.get_coded(places, first, 0, 0, has_small=True)
        except TooFewFragments as error:
            raise Unavailable(f"too few devices have answered ({_ailments(error.refused)})") from error
        await stream.close()
        return stream.info


def _ailments(refused: Sequence[Refused]) -> str:
    return "; ".join(f"{device.name}: {error}" for device, error in refused) or "the others do not have it"
