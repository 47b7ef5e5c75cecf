"""`CodedRepair`: fragments are compared and repaired over the native transport; native code makes and proves them.

Fault model: as `swiftlet.transport.native_coded`. A rebuild in which no byte is made for the idle timeout is given up;
nothing is kept of it then. An attempt to decide that is given up may have decided.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Collection, Sequence
from typing import Literal, TypeVar, cast

from swiftlet_native import CodedRebuilding, CodedRecovering, CodedWire, PackWire

from swiftlet.boundaries.coded import (
    CodedPlaces,
    CodedVersion,
    Rebuilt,
    Recovered,
    References,
    Said,
    ShownFragment,
    UnsettledFragment,
)
from swiftlet.errors import NodeError, NodeTimeout, NotFound, Superseded
from swiftlet.model import ObjectKey
from swiftlet.native_values import key_at, place
from swiftlet.ring.model import Coding, Device
from swiftlet.transport.native_caller import Message, trace
from swiftlet.transport.native_calls import STREAM_S
from swiftlet.transport.native_coded import NativeCoded, Waiter
from swiftlet.transport.native_replicas import made, parsed

_LOOK_S = 1.0
"""Seconds between checks whether a rebuild makes progress."""

T = TypeVar("T")


class NativeCodedRepair:
    """Compares and repairs the fragments of coded objects."""

    def __init__(self, coded: NativeCoded) -> None:
        """Use the calls and the devices that `coded` knows."""
        self._coded = coded

    async def show(self, device: Device, key: ObjectKey) -> ShownFragment | None:
        """Return what a device shows of a fragment."""
        header, _ = await self._coded.caller.ask(device, made(device, CodedWire.show, place(key)))
        shown = parsed(device, CodedWire.shown, header)
        return None if shown is None else ShownFragment(*shown, header)

    async def learn(self, device: Device, key: ObjectKey, shown: ShownFragment) -> Said:
        """Tell a device what another place shows."""
        return await self._said(device, made(device, CodedWire.learn, place(key), shown.told))

    async def hand_back(self, device: Device, key: ObjectKey, shown: ShownFragment) -> bool:
        """Tell a device that stands in for a place what that place shows; return whether it has dropped its own."""
        return await self._said(device, made(device, CodedWire.hand_back, place(key), shown.told)) == "done"

    async def posted(self, device: Device, key: ObjectKey) -> bytes | None:
        """Return the newest metadata that a device has."""
        newest, _ = await self._coded.caller.ask(device, made(device, CodedWire.newest, place(key)))
        return newest if parsed(device, CodedWire.has_post, newest) else None

    async def post(self, device: Device, key: ObjectKey, told: bytes) -> None:
        """Have a device merge the metadata of another one."""
        message = made(device, CodedWire.post, place(key), told)
        with contextlib.suppress(Superseded, NotFound):  # It knows better.
            await self._coded.caller.ask(device, message)

    async def settle(self, device: Device, key: ObjectKey, version: CodedVersion) -> Said:
        """Tell a device that older versions are dead."""
        return await self._said(device, made(device, CodedWire.settle, place(key), version))

    async def _said(self, device: Device, message: Message) -> Said:
        header, _ = await self._coded.caller.ask(device, message)
        return cast("Said", parsed(device, CodedWire.said, header))

    async def unsettled(
        self, device: Device, policy: int, after: ObjectKey | None
    ) -> tuple[Sequence[UnsettledFragment], bool]:
        """Return the first versions behind a key that are not settled, in order, and whether others follow."""
        behind = None if after is None else (after.partition, after.digest)
        header, _ = await self._coded.caller.ask(device, made(device, CodedWire.unsettled, policy, behind))
        found, more = parsed(device, CodedWire.unsettled_list, header)
        return [
            UnsettledFragment(key_at(parts), version, chosen, certain) for parts, version, chosen, certain in found
        ], more

    async def references(self, device: Device, key: ObjectKey, digests: Sequence[bytes]) -> References:
        """Return which objects of a partition are in packs at a device."""
        message = made(device, PackWire.references, place(key), list(digests))
        _, body = await self._coded.caller.ask(device, message)
        return References(frozenset(parsed(device, PackWire.referred, body)), body)

    async def refer(self, device: Device, key: ObjectKey, found: References, digests: Collection[bytes]) -> set[bytes]:
        """Have a device take these references of another one; return the objects of which it has them now."""
        taken: set[bytes] = set()
        for message, about in PackWire.learn(device.device, place(key), found.told, list(digests)):
            header, _ = await self._coded.caller.ask(device, message)
            if parsed(device, PackWire.is_taken, header):
                taken.update(about)
        return taken

    async def post_referred(
        self, device: Device, key: ObjectKey, found: References, digests: Collection[bytes]
    ) -> None:
        """Have a device merge what another one has said was posted to objects in packs."""
        for message, _ in PackWire.posts(device.device, place(key), found.told, list(digests)):
            with contextlib.suppress(Superseded, NotFound):  # It knows better.
                await self._coded.caller.ask(device, message)

    def is_settled(self, coding: Coding, equal: int) -> bool:
        """Return whether older versions are dead when so many other places show a version in one round."""
        return CodedWire.is_settled(coding.data, coding.parity, equal)

    async def rebuild(self, places: CodedPlaces, place: int, version: CodedVersion, distances: bytes = b"") -> Rebuilt:
        """Make the fragment of a place, and have the device there keep it."""
        parts, caller = await self._coded.parts(places), self._coded.caller
        waiter = Waiter()
        node, token = caller.listen(waiter)
        waits = caller.settings.answer_timeout_s, STREAM_S
        try:
            rebuilding = node.rebuild_coded(token, parts, (place, version, distances), waits, trace())
        except ValueError as error:
            caller.mute(token)
            raise NodeError(f"a fragment can't be rebuilt: {error}") from error
        try:
            end, size, refused = await self._rebuilt(rebuilding, waiter)
            read = [(places.ring.device(number), read_bytes) for number, read_bytes in rebuilding.read()]
        finally:
            rebuilding.close()
            caller.mute(token)
        return Rebuilt(cast("Said", end), size, self._coded.refused(places, refused), read)

    async def _rebuilt(self, rebuilding: CodedRebuilding, waiter: Waiter) -> tuple[str, int, list[Refusal]]:
        loop = asyncio.get_running_loop()
        size, since_s = 0, loop.time()
        while (ended := rebuilding.ended()) is None:
            if waiter.is_over:
                raise NodeError("this client was closed")
            await waiter.wait(_LOOK_S)
            if (by_now := rebuilding.made()) != size:
                size, since_s = by_now, loop.time()
            elif loop.time() - since_s > self._coded.idle_timeout_s + self._coded.caller.settings.answer_timeout_s:
                raise NodeTimeout(f"a rebuild stands still at byte {size} of the fragment")
        return ended

    async def recover(
        self, places: CodedPlaces, version: CodedVersion, chosen: Sequence[tuple[int, int]], round_number: int
    ) -> Recovered:
        """Have the devices that its proxy chose decide about a write."""
        parts, caller = await self._coded.parts(places), self._coded.caller
        waiter = Waiter()
        node, token = caller.listen(waiter)
        ballot = round_number, secrets.randbits(64)
        timeout_s = caller.settings.answer_timeout_s
        try:
            recovering = node.recover_coded(token, parts, (version, list(chosen)), ballot, timeout_s, trace())
        except (ValueError, OverflowError) as error:
            caller.mute(token)
            raise NodeError(f"nobody can be asked about a write: {error}") from error
        try:
            end, round_heard, refused = await _recovered(recovering, waiter)
        finally:
            recovering.close()
            caller.mute(token)
        outcome = cast("Literal['committed', 'aborted', 'superseded', 'later']", end)
        return Recovered(outcome, round_heard, self._coded.refused(places, refused))


Refusal = tuple[int, tuple[str, str] | None, tuple[int, bytes] | None]
"""A device by its id, and a failure's kind and text, or the status and header of a refusal."""


async def _recovered(recovering: CodedRecovering, waiter: Waiter) -> tuple[str, int, list[Refusal]]:
    # Each of its three steps ends by itself, with the deadline of its requests.
    while (ended := recovering.ended()) is None:
        if waiter.is_over:
            raise NodeError("this client was closed")
        await waiter.wait(_LOOK_S)
    return ended
