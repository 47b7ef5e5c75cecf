"""Pieces of bodies that are digested side by side."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from swiftlet_native import Hasher, md5

from swiftlet.client.direct.hashing import TOGETHER, Hashing


async def test_each_body_has_its_own_digest() -> None:
    """More bodies than lanes, of different lengths; one of them is given up, and the others go on."""
    hashing = Hashing()
    bodies = [bytes([number]) * (100 + 1000 * number) for number in range(TOGETHER + 4)]

    async def digested(body: bytes) -> bytes:
        hasher = Hasher()
        for start in range(0, len(body), 700):
            await hashing.update(hasher, body[start : start + 700])
        return hasher.md5_digest()

    given_up = asyncio.ensure_future(digested(bytes(100_000)))
    digests = asyncio.gather(*map(digested, bodies))
    await asyncio.sleep(0)
    given_up.cancel()
    assert await digests == [md5(body) for body in bodies]
    assert given_up.cancelled()
    assert (await digested(b""), await digested(b"again")) == (md5(b""), md5(b"again"))


async def test_what_goes_wrong_is_told_to_who_waits() -> None:
    hashing, wrong = Hashing(), object()
    given: Any = wrong
    with pytest.raises(TypeError):
        await hashing.update(given, b"1")
    hasher = Hasher()
    await hashing.update(hasher, b"1")
    assert hasher.md5_digest() == md5(b"1")
