"""`CodedPacker`: small objects are packed over the native transport, by native code in a thread for each partition.

Fault model: as `swiftlet.transport.native_coded`. A packer that is cancelled stops before its next message; each of its
steps may be the last one, and be repeated by others.
"""

from __future__ import annotations

import asyncio
import secrets

from swiftlet_native import CodedPacking

from swiftlet.boundaries.coded import CodedPlaces, Packed, PackTerms
from swiftlet.errors import NodeError
from swiftlet.timestamp import Timestamp
from swiftlet.transport.native_caller import trace
from swiftlet.transport.native_calls import STREAM_S
from swiftlet.transport.native_coded import NativeCoded

SETTLE_S = 10.0
"""Seconds that a place may take to have its fragment of a new pack settled."""
_DRAWN_BITS = 64


class NativeCodedPacker:
    """Packs the small objects of partitions."""

    def __init__(self, coded: NativeCoded) -> None:
        """Use the calls and the devices that `coded` knows."""
        self._coded = coded

    async def pack(self, places: CodedPlaces, terms: PackTerms, timestamp: Timestamp) -> Packed:
        """Do a round of a packer in a partition."""
        parts, caller = await self._coded.parts(places), self._coded.caller
        waits = caller.settings.answer_timeout_s, STREAM_S, SETTLE_S
        which = places.coding.holders, terms.before.value, terms.least_bytes, terms.most_bytes
        try:
            packing = CodedPacking(parts, waits, which, trace())
        except (ValueError, OverflowError, OSError) as error:
            raise NodeError(f"a partition can't be packed: {error}") from error
        own_bits = _DRAWN_BITS - places.ring.part_power
        drawn = places.key.partition << own_bits | secrets.randbits(own_bits)
        version = timestamp.value, secrets.randbits(63)
        try:
            done, why = await asyncio.to_thread(packing.round, drawn, version)
        finally:
            packing.end()
        if why is not None:
            raise NodeError(f"partition {places.key.partition} is not packed yet: {why[0]}: {why[1]}")
        return Packed(*done)
