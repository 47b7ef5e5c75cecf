"""Who looks up which fragments, and what a device that no reader asks means for a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

import pytest

from swiftlet.boundaries.coded import CodedPlaces, CodedRepair, CodedTransport, ShownFragment
from swiftlet.errors import NodeUnreachable, NotFound
from swiftlet.model import ObjectInfo, ObjectKey, ObjectRow
from swiftlet.placement.tests.cluster import at, make_ring
from swiftlet.ring.model import Coding, Device
from swiftlet.sync.audit.coded import Coded
from swiftlet.sync.audit.looking import Looked
from swiftlet.timestamp import Timestamp

CODING = Coding(4, 2, 1024)
RING = make_ring(14, CODING.fragments)
KEY = ObjectKey(1, 3, b"d" * 16)
DELETED = at(20)


class Devices:
    """Places that have a tombstone, and devices that show something or are away."""

    def __init__(self, shown: Mapping[int, Timestamp | None], copies: Mapping[int, Timestamp]) -> None:
        """`shown` has the timestamp of what devices show of place 0, by their ids; None for one that is away.

        `copies` has that of tombstones among copies.
        """
        self._shown = shown
        self._copies = copies

    async def get_coded(self, _places: CodedPlaces, _first: object, _start: int, _stop: int, has_small: bool) -> object:
        assert has_small
        raise NotFound("deleted", DELETED)

    async def head(self, device: Device, _key: ObjectKey) -> ObjectInfo:
        raise NotFound("there is no copy", self._copies.get(device.id))

    async def show(self, device: Device, key: ObjectKey) -> ShownFragment | None:
        shown = self._shown.get(device.id, DELETED)
        if shown is None:
            raise NodeUnreachable(f"{device.address} is away")
        return ShownFragment((shown.value, 0), True, b"") if key.partition % 32 == 0 else None


def coded(shown: Mapping[int, Timestamp | None], copies: Mapping[int, Timestamp] = MappingProxyType({})) -> Coded:
    devices = Devices(shown, copies)
    transport, repair = cast("CodedTransport", devices), cast("CodedRepair", devices)
    return Coded(transport, repair, devices.head, lambda _: RING, lambda _: CODING)


LAST = RING.may_hold(KEY.partition)[-1].id
"""A handoff that reads don't ask."""


@pytest.mark.parametrize(
    ("shown", "is_complete"),
    [({}, True), ({LAST: at(19)}, True), ({LAST: at(21)}, False), ({LAST: None}, False)],
)
async def test_a_look_everywhere_is_complete_when_nothing_newer_is_shown(
    shown: Mapping[int, Timestamp | None], is_complete: bool
) -> None:
    truth = ObjectRow("o", DELETED, deleted=True)
    assert await coded(shown).look(KEY, "o") == Looked(truth, True)
    assert await coded(shown).look_everywhere(KEY, "o") == Looked(truth, is_complete)
    assert await coded(shown, {LAST: at(21)}).look_everywhere(KEY, "o") == Looked(truth, False)


def test_the_devices_of_the_first_places_walk_and_those_of_one_replicator_once() -> None:
    at_places = [device.id for device in RING.primaries(KEY.partition)]
    look = coded({})

    def walkers(*own: int) -> list[int | None]:
        return [look.walker(1, 32 * KEY.partition + place, own) for place in range(32)]

    for place, device in enumerate(at_places):
        # Who walks the fragments walks the copies as well.
        expected = [device if number in {place, 31} and place <= CODING.parity else None for number in range(32)]
        assert walkers(device) == expected
    assert walkers(*at_places) == [at_places[0], *[None] * 30, at_places[0]]
    assert walkers(*at_places[1:]) == [None, at_places[1], *[None] * 29, at_places[1]]
    assert look.walker(1, 32 * RING.partition_count, at_places) is None
