"""Pieces of bodies that are digested side by side."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from swiftlet_native import Hasher, md5

from swiftlet.client.direct.hashing import AHEAD_BYTES, PIECE_BYTES, TOGETHER, Hashing


async def test_each_body_has_its_own_digest() -> None:
    """More bodies than lanes, of different lengths; one of them is given up, and the others go on."""
    hashing = Hashing()
    bodies = [bytes([number]) * (100 + 1000 * number) for number in range(TOGETHER + 4)]

    async def digested(body: bytes) -> bytes:
        digesting = hashing.begin(Hasher())
        for start in range(0, len(body), 700):
            digesting.add(body[start : start + 700])
            await digesting.room()
        await digesting.finish()
        return digesting.hasher.md5_digest()

    given_up = hashing.begin(Hasher())
    given_up.add(bytes(100_000))
    await given_up.room()
    digests = asyncio.gather(*map(digested, bodies))
    await asyncio.sleep(0)
    await given_up.close()
    assert await digests == [md5(body) for body in bodies]
    assert (await digested(b""), await digested(b"again")) == (md5(b""), md5(b"again"))


async def test_who_brings_bytes_faster_than_they_are_digested_waits() -> None:
    digesting, piece, most = Hashing().begin(Hasher()), bytes(1 << 20), 0
    for _ in range(12):
        digesting.add(piece)
        await digesting.room()
        most = max(most, digesting.bytes_left)
    assert most <= AHEAD_BYTES
    await digesting.finish()
    assert digesting.hasher.md5_digest() == md5(12 * piece)


async def test_what_is_closed_reads_no_bytes_any_more() -> None:
    digesting, data = Hashing().begin(Hasher()), bytearray(3 << 20)
    digesting.add(data)
    await digesting.room()
    digesting.add(data)
    await digesting.room()
    await digesting.close()
    data.clear()  # which a reader's hold on the bytes would forbid
    await digesting.close()
    assert digesting.hasher.size in range(0, (6 << 20) + 1, PIECE_BYTES)


async def test_what_goes_wrong_is_told_to_who_waits() -> None:
    hashing, wrong = Hashing(), object()
    given: Any = wrong
    lost = hashing.begin(given)
    lost.add(b"1")
    await lost.room()
    with pytest.raises(TypeError):
        await lost.finish()
    await lost.close()
    sound = hashing.begin(Hasher())
    sound.add(b"1")
    await sound.room()
    await sound.finish()
    assert sound.hasher.md5_digest() == md5(b"1")
