"""Uploads of any size: in one request, or in segments that go in parallel and become a static large object.

Segments of an object are in the container `CONTAINER_segments`, below `NAME/swiftlet/UPLOAD/`. An upload that fails or
is cancelled deletes its segments. One that can be resumed leaves them, under a name that follows from the file's size
and time of change: the next attempt takes those whose ETag is that of the file's bytes, and never writes over one. It
does not take those that the present version of the object consists of: they go when that version goes.

After an object has been replaced, the segments of the version before it are deleted, if such an upload has made them
and the container keeps no versions. What fails here has no effect on the object: segments are left over.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path

from swiftlet.client.account import Account
from swiftlet.client.attempts import had_no_effect
from swiftlet.client.bodies import Body, BytesBody, FileBody, local_errors
from swiftlet.client.concurrency import Room, run_all
from swiftlet.client.digests import etag_of_segments
from swiftlet.client.errors import (
    ChecksumMismatch,
    ClientError,
    Conflict,
    Forbidden,
    LocalError,
    NotFound,
    PreconditionFailed,
    StatusError,
    TooLarge,
)
from swiftlet.client.objects import Objects
from swiftlet.client.progress import Meter, Progress
from swiftlet.client.values import ContainerInfo, ObjectRequest, Written

_log = logging.getLogger("swiftlet.client")
_FOLDER = "swiftlet"
_END_WITHIN_S = 2.0
"""Seconds for which segments that are on their way when an upload fails may still arrive, to be deleted then."""
_LONGEST_NAME = 900
"""Bytes of a name that its segments bear as it is; those of a longer one bear a digest."""
_MIB = 1 << 20
_USUAL_SEGMENTS = 1000
_USUAL_LARGEST = 5 << 30
_DOUBLED_EVERY = 5
"""Segments of a stream double in size each time this part of the permitted number is used."""


@dataclass(frozen=True, slots=True)
class _Segment:
    path: str
    etag: str
    size: int

    def entry(self) -> dict[str, object]:
        """Return it as manifests have it."""
        return {"path": f"/{self.path}", "etag": self.etag, "size_bytes": self.size}


class Uploads:
    """Stores bodies of any size."""

    def __init__(self, objects: Objects, account: Account) -> None:
        """Send bodies by `objects`; manifests and containers are the account's business."""
        self._objects = objects
        self._account = account
        self._options = objects.options

    async def put(
        self, request: ObjectRequest, body: Body, *, progress: Progress | None = None, resume: bool = False
    ) -> Written:
        """Store a body; with `resume` an earlier attempt at the same file is continued."""
        meter = Meter(progress, body.size)
        if body.size is None:
            return await self._put_stream(request, body, meter)
        if body.size <= self._options.segments_above_bytes:
            return await self._objects.put(request, body, meter)
        if isinstance(body, (FileBody, BytesBody)):
            return await self._put_parts(request, body, meter, resume=resume)
        return await self._put_stream(request, body, meter)

    async def _put_parts(
        self, request: ObjectRequest, body: FileBody | BytesBody, meter: Meter, *, resume: bool
    ) -> Written:
        """Store a body that can be read at any place."""
        size = await self._segment_bytes(body.size)
        if resume and isinstance(body, FileBody):
            upload = _Upload(self, request, meter, _resumable_key(body.path, size), keep=True)
        else:
            upload = _Upload(self, request, meter)
        async with upload:
            await upload.begin()
            parts = ((number, _part(body, start, size)) for number, start in enumerate(range(0, body.size, size)))
            before = body.state()
            segments = await run_all(parts, upload.store, self._options.concurrency)
            if body.state() != before:
                raise LocalError(f"{request}: the file has changed while it was uploaded")
            return await upload.finish(segments)

    async def _put_stream(self, request: ObjectRequest, body: Body, meter: Meter) -> Written:
        """Store a body that is read once: each segment is held in memory, so that it can be sent again."""
        most = await self._account.limit("slo", "max_manifest_segments", _USUAL_SEGMENTS)
        pieces = _pieces(body, self._options.stream_segment_bytes, max(1, most // _DOUBLED_EVERY))
        async with aclosing(pieces):
            first = await anext(pieces, b"")
            second = await anext(pieces, None) if len(first) >= self._options.stream_segment_bytes else None
            if second is None:
                meter.total = len(first)
                return await self._objects.put(request, BytesBody(first), meter)
            upload = _Upload(self, request, meter)
            async with upload:
                await upload.begin()
                room = Room(self._options.stream_memory_bytes)

                async def store(part: tuple[int, Body]) -> _Segment:
                    try:
                        return await upload.store(part)
                    finally:
                        room.give(part[1].size or 0)

                segments = await run_all(_bodies([first, second], pieces, room), store, self._options.concurrency)
                return await upload.finish(segments)

    async def _segment_bytes(self, size: int) -> int:
        most = await self._account.limit("slo", "max_manifest_segments", _USUAL_SEGMENTS)
        largest = await self._account.limit("swift", "max_file_size", _USUAL_LARGEST)
        needed = max(self._options.segment_bytes, -(-size // most))
        rounded = needed if needed == self._options.segment_bytes else -(-needed // _MIB) * _MIB
        if rounded > largest:
            raise TooLarge(413, f"{size} bytes do not fit into {most} segments of {largest} bytes", "PUT")
        return rounded


class _Upload:
    """One upload in segments; a context that deletes them when it fails."""

    def __init__(
        self, uploads: Uploads, request: ObjectRequest, meter: Meter, key: str | None = None, keep: bool = False
    ) -> None:
        """Take names for segments; with `keep` they stay when the upload fails."""
        self._objects = uploads._objects
        self._account = uploads._account
        self._options = uploads._options
        self._request = request
        self._meter = meter
        self._keep = keep
        self._container = f"{request.container}_segments"
        self._folder = f"{_short(request.name)}/{_FOLDER}/"
        self._prefix = f"{self._folder}{key or secrets.token_hex(8)}/"
        self._stored: list[str] = []
        self._under_way: set[asyncio.Task[Written]] = set()
        self._found: dict[int, list[_Segment]] = {}
        self._before: list[_Segment] = []
        self._is_done = False

    async def __aenter__(self) -> _Upload:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._is_done and not self._keep:
            # Also when the caller is cancelled: then this goes on until it is done.
            await asyncio.shield(self._undo())
        else:
            self._cut_off()

    async def _undo(self) -> None:
        """Delete the segments. A store may read a request that was cut off after the deletion that was sent later: so
        those under way may end by themselves first.
        """
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=_END_WITHIN_S)
        self._cut_off()
        await self._delete(self._stored)

    def _cut_off(self) -> None:
        for task in self._under_way:
            task.cancel()

    async def begin(self) -> None:
        """Look for what is there: the container, the object before, segments of an earlier attempt."""
        container = await self._make_container()
        if self._request.headers.get("If-None-Match") == "*":
            await self._refuse_existing()
        if container is not None and not container.keeps_versions and "version-id" not in self._request.query:
            self._before = await self._segments_before()
        if self._keep:
            taken = {segment.path for segment in self._before}
            async for entry in self._account.entries(self._container, {"prefix": self._prefix}):
                number = entry.name.removeprefix(self._prefix).partition("-")[0]
                segment = _Segment(f"{self._container}/{entry.name}", entry.etag, entry.size)
                if number.isdigit() and segment.path not in taken:
                    self._found.setdefault(int(number), []).append(segment)

    async def _make_container(self) -> ContainerInfo | None:
        """Return what is known of the object's container; make the one for segments, with the same policy."""
        try:
            container = await self._account.container(self._request.container)
        except Forbidden:
            return None
        try:
            await self._account.container(self._container)
        except NotFound:
            policy = {"X-Storage-Policy": container.policy} if container.policy else {}
            try:
                await self._account.create_container(self._container, policy)
            except Conflict:
                _log.debug("%s has been made meanwhile, with another policy", self._container)
        return container

    async def _refuse_existing(self) -> None:
        try:
            await self._objects.head(ObjectRequest(self._request.container, self._request.name))
        except NotFound:
            return
        raise PreconditionFailed(412, "the object exists", f"PUT {self._request}")

    async def _segments_before(self) -> list[_Segment]:
        """Return the segments of the present version that an upload like this has made."""
        plain = ObjectRequest(self._request.container, self._request.name)
        try:
            if not (await self._objects.head(plain)).is_static_large:
                return []
            manifest = await self._account.manifest(plain)
        except (NotFound, Forbidden):
            return []
        ours = f"{self._container}/{self._folder}"
        segments = [
            _Segment(str(entry["name"]).lstrip("/"), str(entry.get("hash", "")), int(entry.get("bytes", 0)))
            for entry in manifest
            if "name" in entry
        ]
        return [segment for segment in segments if segment.path.startswith(ours)]

    async def store(self, part: tuple[int, Body]) -> _Segment:
        """Store a segment, unless an earlier attempt has."""
        number, body = part
        for found in self._found.get(number, []):
            if found.size == body.size and await _has_etag(body, found.etag):
                self._meter.add(found.size)
                return found
        name = f"{self._prefix}{number:06d}-{secrets.token_hex(4)}"
        self._stored.append(name)
        request = ObjectRequest(self._container, name, {"Content-Type": "application/octet-stream"})
        task = asyncio.create_task(self._objects.put(request, body, self._meter))
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        written = await asyncio.shield(task)
        return _Segment(f"{self._container}/{name}", written.etag, written.size)

    def _ended(self, task: asyncio.Task[Written]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # Whoever waits for it raises it; nobody may wait any more.

    async def finish(self, segments: list[_Segment]) -> Written:
        """Make the object of its segments, then delete those of the version before."""
        # From here on the object may consist of them, unless every attempt was refused: then they may be deleted.
        self._is_done = True
        failures: list[ClientError] = []
        try:
            written = await self._account.put_manifest(
                self._request, [segment.entry() for segment in segments], failures
            )
        except StatusError:
            self._is_done = not all(map(_is_refusal, failures))
            raise
        expected = etag_of_segments(segment.etag for segment in segments)
        if self._options.verify and written.etag and written.etag != expected:
            raise ChecksumMismatch(f"{self._request}: the store has made it of other segments than were sent")
        kept = {segment.path for segment in segments}
        await self._delete([s.path.removeprefix(f"{self._container}/") for s in self._before if s.path not in kept])
        return replace(written, size=sum(segment.size for segment in segments), segments=len(segments))

    async def _delete(self, names: list[str]) -> None:
        async def delete(name: str) -> None:
            try:
                await self._objects.delete(ObjectRequest(self._container, name))
            except NotFound:
                return
            except ClientError as error:
                _log.warning("the segment %s/%s is left over: %s", self._container, name, error)

        await run_all(names, delete, self._options.concurrency)


def _is_refusal(error: ClientError) -> bool:
    """Whether the store has certainly not done what was asked."""
    return had_no_effect(error) or (isinstance(error, StatusError) and error.status < 500)


def _short(name: str) -> str:
    """Return a name that has room behind it; that of a long one is a digest."""
    raw = name.encode("utf-8", "surrogateescape")
    return name if len(raw) <= _LONGEST_NAME else hashlib.sha256(raw).hexdigest()


def _resumable_key(path: Path, segment_bytes: int) -> str:
    with local_errors(path):
        status = path.stat()
    return f"{status.st_mtime_ns:x}-{status.st_size:x}-{segment_bytes:x}"


def _part(body: FileBody | BytesBody, start: int, size: int) -> Body:
    if isinstance(body, BytesBody):
        return BytesBody(body.data[start : start + size])
    return FileBody(body.path, body.start + start, min(size, body.size - start))


async def _has_etag(body: Body, etag: str) -> bool:
    """Whether the body's bytes, read for this, have the ETag."""
    async with aclosing(body.chunks()) as chunks:
        async for _ in chunks:
            pass
    return await body.matches(etag)


async def _bodies(begun: list[bytes], rest: AsyncIterator[bytes], room: Room) -> AsyncIterator[tuple[int, Body]]:
    """Yield pieces as numbered bodies, each when there is room for it."""
    number = 0
    while begun:
        data = begun.pop(0)
        await room.take(len(data))
        yield number, BytesBody(data)
        number += 1
    async for data in rest:
        await room.take(len(data))
        yield number, BytesBody(data)
        number += 1


async def _pieces(body: Body, size: int, doubled_every: int) -> AsyncGenerator[bytes, None]:
    """Yield a stream in pieces of `size`; it doubles each time that so many have been made."""
    made = 0
    held = bytearray()
    async with aclosing(body.chunks()) as chunks:
        async for data in chunks:
            held += data
            while len(held) >= size:
                yield bytes(held[:size])
                del held[:size]
                made += 1
                if made % doubled_every == 0:
                    size *= 2
    if held:
        yield bytes(held)
