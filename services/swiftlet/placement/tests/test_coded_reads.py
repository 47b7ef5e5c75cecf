"""What a read of a coded object tells native code: whom to ask first, and who may stand in for one that is late."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import Mock

from swiftlet.boundaries.coded import CodedPlaces
from swiftlet.names import HashPath, Path
from swiftlet.placement.coded import CodedObjects
from swiftlet.placement.health import NodeHealth
from swiftlet.ring import RingBuilder
from swiftlet.ring.model import Coding
from swiftlet.testing.storage.coded_conformance import record
from swiftlet.testing.storage.memory_coded import MemoryCoded, MemoryCodedGet
from swiftlet.testing.store.conformance import footer_of

CODING = Coding(4, 2, 1024)
PATH = Path("a", "c", "o")


class Asked(MemoryCoded):
    """Remembers who was asked first, and makes reads that had to ask others twice."""

    first: Sequence[int] = ()
    sound = 0

    async def get_coded(
        self,
        places: CodedPlaces,
        first: Sequence[int],
        start: int,
        stop: int | None,
        has_small: bool = False,
        sound: int = 0,
    ) -> MemoryCodedGet:
        self.first, self.sound = first, sound
        return Late(await super().get_coded(places, first, start, stop, has_small, sound))


class Late(MemoryCodedGet):
    """A read in which two devices were late."""

    def __init__(self, read: MemoryCodedGet) -> None:
        super().__init__(read._version, read._info, 0, None)

    @property
    def hedges(self) -> int:
        return 2


async def test_who_failed_or_missed_a_write_is_asked_last_and_does_not_stand_in() -> None:
    builder = RingBuilder(4, CODING.fragments, min_part_hours=0)
    for number in range(8):
        builder.add_device(host="127.0.0.1", port=1 + number, device="d", region="r", zone=f"z{number}", weight=1)
    builder.rebalance(1)
    rings, transport, health, hedged = Mock(), Asked(), NodeHealth(), list[int]()
    rings.objects.return_value = builder.ring
    objects = CodedObjects(
        rings, transport, Mock(), HashPath(b"p", b"s"), health, lambda _: CODING, hedged=hedged.append
    )
    places = objects.places(PATH, 1)
    stream = await transport.open_coded_put(places, record(1.0), 4, [])
    await stream.write(b"body")
    await stream.commit(footer_of(b"body").etag)
    await (await objects.get(PATH, 1)).close()
    assert (sorted(transport.first), transport.sound) == (list(range(6)), 6)
    for place in (1, 4):
        for _ in range(3):
            health.failed(places.at[place])
    download = await objects.get(PATH, 1)
    assert (set(transport.first[4:]), transport.sound) == ({1, 4}, 4)
    await download.close()
    await download.close()
    assert hedged == [2, 2], "each read is counted once"
