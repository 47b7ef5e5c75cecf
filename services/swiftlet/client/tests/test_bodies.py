"""Bodies: files that are read ahead, and what can't be a body."""

from __future__ import annotations

import io
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from swiftlet.client.bodies import CHUNK, FileBody, StreamBody, body_of
from swiftlet.client.digests import digest_for
from swiftlet.client.errors import ConfigurationError, LocalError

SIZES = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 7]


def etag(data: bytes) -> str:
    digest = digest_for("0" * 32)
    assert digest is not None
    digest.update(data)
    return digest.etag()


@pytest.mark.parametrize("size", SIZES)
async def test_a_file_is_read_again_and_in_parts(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    path = tmp_path / "file"
    path.write_bytes(content)
    for start in (0, min(5, size)):
        body = FileBody(path, start)
        for _ in range(2):
            assert b"".join([bytes(piece) async for piece in body.chunks()]) == content[start:]
            assert await body.matches(etag(content[start:]))


async def test_bytes_are_not_hashed_when_nobody_will_ask(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    for body in (FileBody(tmp_path / "file"), StreamBody(stream())):
        assert b"".join([bytes(piece) async for piece in body.chunks(hashed=False)]) == b"abc"
        assert not await body.matches(etag(b"abc"))


async def stream() -> AsyncIterator[bytes]:
    yield b"abc"


async def test_a_file_that_is_left_in_the_middle_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(4 * CHUNK))
    descriptors = set(os.listdir("/proc/self/fd"))
    body = FileBody(path)
    chunks = body.chunks()
    assert len(await anext(chunks)) == CHUNK
    await chunks.aclose()
    assert len(os.listdir("/proc/self/fd")) == len(descriptors)
    assert b"".join([bytes(piece) async for piece in body.chunks()]) == bytes(4 * CHUNK)
    assert await body.matches(etag(bytes(4 * CHUNK)))


async def test_a_file_that_gets_shorter(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(4 * CHUNK))
    body = FileBody(path)
    os.truncate(path, 2 * CHUNK)
    with pytest.raises(LocalError, match="shorter"):
        _ = [piece async for piece in body.chunks()]


@pytest.mark.parametrize("source", ["text", 5, None])
def test_what_is_no_body_is_refused(source: Any) -> None:
    with pytest.raises(ConfigurationError, match="body"):
        body_of(source)


async def test_a_file_of_text_is_refused() -> None:
    text: Any = io.StringIO("text")
    with pytest.raises(ConfigurationError, match="'rb'"):
        _ = [piece async for piece in body_of(text).chunks()]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="No such file"):
        body_of(tmp_path / "none")
