"""`CodedPacker`: small objects are packed over the native transport, by native code in a thread for each partition.

Fault model: as `swiftlet.transport.native_coded`. A packer that is cancelled stops before its next message; each of its
steps may be the last one, and be repeated by others.
"""

from __future__ import annotations

import asyncio
import secrets

from swiftlet_native import CodedPacking

from swiftlet.boundaries.coded import NOTHING_PASSED_BY, CodedPlaces, Pack, Packed, PackTerms, PassedBy
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

    async def pack(
        self, places: CodedPlaces, terms: PackTerms, timestamp: Timestamp, passed_by: PassedBy = NOTHING_PASSED_BY
    ) -> Packed:
        """Do a round of a packer in a partition."""
        packing = await self._packing(places, terms, passed_by)
        own_bits = _DRAWN_BITS - places.ring.part_power
        drawn = places.key.partition << own_bits | secrets.randbits(own_bits)
        version = timestamp.value, secrets.randbits(63)
        try:
            done, why = await asyncio.to_thread(packing.round, drawn, version)
        finally:
            packing.end()
        members, size, finished, retired, unused, (looked_at_all, unfinished), left_out, anew, seen = done
        packs = tuple(Pack(*one) for one in unused)
        stopped = None if why is None else f"{why[0]}: {why[1]}"
        return Packed(
            members,
            size,
            finished,
            retired,
            packs,
            tuple(unfinished),
            looked_at_all,
            tuple(left_out),
            stopped,
            *anew,
            *seen,
        )

    async def delete(self, places: CodedPlaces, pack: Pack, timestamp: Timestamp) -> None:
        """Put tombstones in the place of a pack that may be deleted."""
        packing = await self._packing(places, PackTerms(timestamp, 0, 0), NOTHING_PASSED_BY)
        try:
            why = await asyncio.to_thread(packing.delete, pack.digest, pack.version, timestamp.value)
        finally:
            packing.end()
        if why is not None:
            raise NodeError(f"pack {pack.digest.hex()} is not deleted everywhere yet: {why[0]}: {why[1]}")

    async def _packing(self, places: CodedPlaces, terms: PackTerms, passed_by: PassedBy) -> CodedPacking:
        parts, caller = await self._coded.parts(places), self._coded.caller
        waits = caller.settings.answer_timeout_s, STREAM_S, SETTLE_S
        which = places.coding.holders, terms.before.value, terms.least_bytes, terms.most_bytes, terms.live_share
        try:
            return CodedPacking(parts, waits, which, (set(passed_by.packs), set(passed_by.copies)), trace())
        except (ValueError, OverflowError, OSError) as error:
            raise NodeError(f"a partition can't be packed: {error}") from error
