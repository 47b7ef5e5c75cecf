"""Downloads whose devices send wrong bytes: what was passed on is never finished as if it were right."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from swiftlet_native import Hasher, xxh3_64

from swiftlet.errors import NodeDamaged, NodeUnreachable, Unavailable
from swiftlet.model import ObjectInfo, ObjectKey
from swiftlet.placement.tests.cluster import at
from swiftlet.placement.transfers import ReplicatedDownload
from swiftlet.ring.model import Device

BODY = b"0123456789"
KEY = ObjectKey(0, 1, bytes(16))
DAMAGED, GONE = NodeDamaged("device 1 sent bytes that do not match their checksum"), NodeUnreachable("it went away")
INFO = ObjectInfo(
    name="o",
    timestamp=at(2),
    size=len(BODY),
    etag="e",
    xxh3=xxh3_64(BODY),
    content_type="a/b",
    metadata={},
    sysmeta={},
    meta_timestamp=at(2),
    content_type_timestamp=at(2),
)


class Scripted:
    """A device's answer: pieces, and perhaps an error after them."""

    def __init__(self, *script: bytes | Exception) -> None:
        self.info = INFO
        self.hasher = Hasher(md5=False)
        self._script = script

    async def chunks(self) -> AsyncIterator[bytes]:
        for one in self._script:
            if isinstance(one, Exception):
                raise one
            self.hasher.update(one)
            yield one

    async def close(self) -> None:
        """Nothing is open."""


class Others:
    """The devices that are asked for the rest, one after the other."""

    def __init__(self, streams: Sequence[Scripted]) -> None:
        self._left = list(streams)
        self.without: list[set[int]] = []
        """The devices that were not to be asked, each time."""

    def failed(self, device: Device) -> None:
        """Nothing is remembered."""

    async def reopen(
        self, key: ObjectKey, info: ObjectInfo, start: int, stop: int, without: set[int]
    ) -> tuple[Device, Scripted]:
        self.without.append(set(without))
        if not self._left:
            raise Unavailable("nobody is left")
        return _device(len(self.without) + 1), self._left.pop(0)


def _device(number: int) -> Device:
    return Device(number, f"d{number}", "h", 1, "d", "r", "z", "n", 1.0)


def download(*streams: Scripted, start: int = 0, stop: int | None = None) -> ReplicatedDownload:
    """A download of the first stream, for which the others stand in."""
    return ReplicatedDownload(Others(streams[1:]), KEY, _device(1), streams[0], start, stop)


async def read(of: ReplicatedDownload) -> tuple[bytes, str]:
    """What was yielded, and why it ended before its end."""
    got = b""
    try:
        async for piece in of.chunks():
            got += piece
    except Unavailable as error:
        return got, str(error)
    return got, ""


async def test_a_device_whose_bytes_were_wrong_from_the_first_on_is_replaced() -> None:
    assert await read(download(Scripted(DAMAGED), Scripted(BODY))) == (BODY, "")


async def test_wrong_bytes_that_were_passed_on_end_the_download() -> None:
    got, why = await read(download(Scripted(b"0124", DAMAGED), Scripted(BODY[4:])))
    assert got == b"0124"
    assert "some of them were passed on" in why


async def test_wrong_bytes_of_a_device_that_went_away_are_found_before_the_last_ones() -> None:
    first = Scripted(b"0124", GONE)
    got, why = await read(download(first, Scripted(b"45", GONE), Scripted(b"67", b"89")))
    assert got == b"01244567"
    assert "does not match the checksum of the object" in why


@pytest.mark.parametrize(("start", "stop"), [(0, None), (0, 10), (2, None), (0, 9)])
async def test_right_bytes_of_several_devices_are_joined(start: int, stop: int | None) -> None:
    wanted = BODY[start:stop]
    streams = Scripted(wanted[:3], GONE), Scripted(wanted[3:5], GONE), Scripted(wanted[5:])
    assert await read(download(*streams, start=start, stop=stop)) == (wanted, "")


async def test_devices_are_asked_again_once_others_have_sent_more() -> None:
    """They may have been restarted meanwhile."""
    others = Others([Scripted(GONE), Scripted(BODY[3:5], GONE), Scripted(GONE), Scripted(BODY[5:])])
    got = await read(ReplicatedDownload(others, KEY, _device(1), Scripted(BODY[:3], GONE), 0, None))
    assert got == (BODY, "")
    assert others.without == [{1}, {1, 2}, {3}, {3, 4}]
