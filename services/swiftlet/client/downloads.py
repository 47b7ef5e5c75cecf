"""Downloads into files: small objects in one request, large ones in ranges that go in parallel.

A file gets its name when all its bytes are there and have been compared with digests: until then they are in a file
beside it, which is deleted when the download fails or is cancelled. All ranges are of one version (If-Match).
A plain object's digest is that of all its bytes; of a static large object the digest of each segment is compared, as
its own is one over those. A dynamic large object has none.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from swiftlet.client.account import Account
from swiftlet.client.bodies import CHUNK, local_errors
from swiftlet.client.concurrency import in_thread, run_all
from swiftlet.client.digests import digest_for, etag_of_segments
from swiftlet.client.errors import ChecksumMismatch, ConnectionFailed, PreconditionFailed, RangeNotSatisfiable
from swiftlet.client.objects import Objects, Reading
from swiftlet.client.progress import Meter, Progress
from swiftlet.client.values import Downloaded, ObjectInfo, ObjectRequest, Span


@dataclass(frozen=True, slots=True)
class _Piece:
    """A range of the object, and the ETag of its bytes if that is known."""

    start: int
    stop: int
    etag: str = ""


class Downloads:
    """Writes objects to files."""

    def __init__(self, objects: Objects, account: Account) -> None:
        """Read by `objects`; manifests come from the account."""
        self._objects = objects
        self._account = account
        self._options = objects.options

    async def to_path(self, request: ObjectRequest, path: Path, progress: Progress | None = None) -> Downloaded:
        """Write an object to a file, which replaces one of that name once all is well."""
        with local_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        for number in range(self._options.retries + 1):
            try:
                with _beside(path) as (descriptor, made):
                    done = await self._to_descriptor(request, descriptor, progress)
                    with local_errors(path):
                        await in_thread(partial(made.replace, path))
                    return done
            except ChecksumMismatch as error:
                if not self._objects.attempts.take(number):
                    raise
                await self._objects.attempts.pause(number, error)
        raise AssertionError("the last attempt has neither returned nor raised")

    async def _to_descriptor(self, request: ObjectRequest, descriptor: int, progress: Progress | None) -> Downloaded:
        limit = self._options.ranges_above_bytes
        meter = Meter(progress, None)
        reading = await self._objects.open(request, None, meter)
        info = reading.info
        meter.total = info.size
        async with reading:
            if info.size is None or info.size <= limit or info.is_dynamic_large or not info.etag:
                size = await _write_from(reading, descriptor, 0)
                return Downloaded(size, info, reading.is_verified or reading.is_compared)
        # The answer was only looked at: its bytes come in ranges.
        return await self._in_ranges(request, info, descriptor, meter)

    async def _in_ranges(self, request: ObjectRequest, info: ObjectInfo, descriptor: int, meter: Meter) -> Downloaded:
        size = info.size or 0
        pieces, is_verified = await self._pieces(request, info, size)
        headers = {k: v for k, v in request.headers.items() if not k.lower().startswith("if-")}
        of_version = replace(request, headers={**headers, "If-Match": f'"{info.etag}"'})

        async def fetch(piece: _Piece) -> None:
            span = Span(piece.start, piece.stop)
            try:
                async with await self._objects.open(of_version, span, meter) as reading:
                    got = await _write_from(reading, descriptor, piece.start)
            except (PreconditionFailed, RangeNotSatisfiable) as error:
                raise ConnectionFailed(f"{request}: another version was stored during the download") from error
            if got != piece.stop - piece.start:
                raise ChecksumMismatch(f"{request}: {got} bytes came instead of {piece.stop - piece.start}")
            if piece.etag and self._options.verify and not reading.is_compared:
                await _compare(descriptor, piece, str(request))

        await run_all(pieces, fetch, self._options.concurrency)
        expected = info.checksum or info.etag
        if info.etag_is_of_bytes and self._options.verify and digest_for(expected) is not None:
            await _compare(descriptor, _Piece(0, size, expected), str(request))
            is_verified = True
        return Downloaded(size, info, is_verified and self._options.verify)

    async def _pieces(self, request: ObjectRequest, info: ObjectInfo, size: int) -> tuple[list[_Piece], bool]:
        """Return the ranges to ask for, and whether each of them has a digest."""
        if info.is_static_large and self._options.verify:
            segments = await self._account.manifest(request)
            if segments and etag_of_segments(str(one.get("hash", "")) for one in segments) == info.etag:
                pieces, start = [], 0
                for one in segments:
                    etag = str(one["hash"]) if digest_for(str(one["hash"])) and not one.get("sub_slo") else ""
                    pieces.append(_Piece(start, start + int(one["bytes"]), etag))
                    start += int(one["bytes"])
                if start == size:
                    return pieces, all(piece.etag for piece in pieces)
        step = self._options.range_bytes
        return [_Piece(start, min(start + step, size)) for start in range(0, size, step)], False


async def _write_from(reading: Reading, descriptor: int, start: int) -> int:
    """Write what is read to a place in a file; return how much that was."""
    position = start
    held: list[bytes] = []
    held_bytes = 0
    with local_errors("the file"):
        async for data in reading:
            held.append(data)
            held_bytes += len(data)
            if held_bytes >= CHUNK:
                position += await in_thread(partial(_write_all, descriptor, held, position))
                held, held_bytes = [], 0
        position += await in_thread(partial(_write_all, descriptor, held, position))
    return position - start


def _write_all(descriptor: int, pieces: list[bytes], position: int) -> int:
    data = memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], position + written)
    return written


async def _compare(descriptor: int, piece: _Piece, name: str) -> None:
    """Raise ChecksumMismatch unless the bytes in the file have the piece's ETag."""

    def etag() -> str:
        digest = digest_for(piece.etag)
        assert digest is not None
        position = piece.start
        while position < piece.stop:
            data = os.pread(descriptor, min(CHUNK, piece.stop - position), position)
            if not data:
                break
            digest.update(data)
            position += len(data)
        return digest.etag()

    if await in_thread(etag) != piece.etag:
        raise ChecksumMismatch(f"{name}: the bytes that came are not those of the ETag {piece.etag}")


@contextmanager
def _beside(path: Path) -> Iterator[tuple[int, Path]]:
    """Yield a new file beside another one; it is deleted at the end if it is still there."""
    made = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}.part")
    with local_errors(path):
        descriptor = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor, made
    finally:
        os.close(descriptor)
        made.unlink(missing_ok=True)
