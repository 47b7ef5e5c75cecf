"""What every way of a client to a store does: a test class derives from `WayContract` and says which way it is.

A container `ways` is there, and empty of the names used here.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

import pytest

from swiftlet.client.batches import Batches, flat
from swiftlet.client.bodies import BytesBody, StreamBody
from swiftlet.client.errors import ConfigurationError, NotFound, NotRepeatable, PreconditionFailed, RangeNotSatisfiable
from swiftlet.client.objects import Objects
from swiftlet.client.options import Options
from swiftlet.client.values import Content, ObjectInfo, ObjectRequest, Span, Written
from swiftlet.client.way import Way

DATA = bytes(range(256)) * 400


def request(name: str, **headers: str) -> ObjectRequest:
    """Return a request for an object; `_` in names of headers is `-`."""
    return ObjectRequest("ways", name, {key.replace("_", "-"): value for key, value in headers.items()})


async def read(way: Way, wanted: ObjectRequest, span: Span | None = None) -> bytes:
    """Return what there is, and close the stream."""
    stream = await way.get(wanted, span)
    try:
        return b"".join([data async for data in stream])
    finally:
        await stream.close()


async def pieces() -> AsyncIterator[bytes]:
    """Yield the data in pieces."""
    for start in range(0, len(DATA), 10_000):
        yield DATA[start : start + 10_000]


class WayContract:
    """Derive from it, with a fixture `way`."""

    async def test_what_is_put_is_there(self, way: Way) -> None:
        """The ETag is that of the bytes; head and get tell the same."""
        for data in (b"", b"x", DATA):
            written = await way.put(request("whole"), BytesBody(data))
            assert written.etag == hashlib.md5(data, usedforsecurity=False).hexdigest()
            assert await read(way, request("whole")) == data
            info = await way.head(request("whole"))
            assert (info.size, info.etag, info.etag_is_of_bytes) == (len(data), written.etag, True)

    async def test_streams(self, way: Way) -> None:
        """With and without a size; read once."""
        for size in (None, len(DATA)):
            body = StreamBody(pieces(), size)
            written = await way.put(request("stream"), body)
            assert await body.matches(written.etag)
            assert await read(way, request("stream")) == DATA
            with pytest.raises(NotRepeatable):
                await way.put(request("stream"), body)

    async def test_a_body_that_breaks_stores_nothing(self, way: Way) -> None:
        """Its error is told as it is."""
        with pytest.raises(ConfigurationError, match="ended after"):
            await way.put(request("short"), StreamBody(pieces(), len(DATA) + 1))
        with pytest.raises(NotFound):
            await way.head(request("short"))

    async def test_ranges(self, way: Way) -> None:
        """The info is that of the whole object."""
        await way.put(request("ranges"), BytesBody(DATA))
        for span in (Span(0, 1), Span(100, 70_000), Span(100_000), Span(5, 10**9)):
            assert await read(way, request("ranges"), span) == DATA[span.start : span.stop]
        assert await read(way, request("ranges"), Span(-3)) == DATA[-3:]
        stream = await way.get(request("ranges"), Span(5, 6))
        await stream.close()
        await stream.close()
        assert stream.info.size == len(DATA)
        with pytest.raises(RangeNotSatisfiable):
            await way.get(request("ranges"), Span(len(DATA)))

    async def test_conditions(self, way: Way) -> None:
        """They hold for reads and for writes."""
        written = await way.put(request("conditions", If_None_Match="*"), BytesBody(b"1"))
        with pytest.raises(PreconditionFailed):
            await way.put(request("conditions", If_None_Match="*"), BytesBody(b"2"))
        with pytest.raises(PreconditionFailed):
            await way.get(request("conditions", If_Match='"0"'), None)
        assert await read(way, request("conditions", If_Match=f'"{written.etag}"')) == b"1"
        with pytest.raises(PreconditionFailed):
            await way.delete(request("conditions", If_Match='"0"'))
        await way.delete(request("conditions"))

    async def test_what_is_deleted_is_gone(self, way: Way) -> None:
        """And what is not there can't be deleted."""
        await way.put(request("deleted"), BytesBody(b"1"))
        await way.delete(request("deleted"))
        for attempt in (way.delete, way.head):
            with pytest.raises(NotFound):
                await attempt(request("deleted"))
        with pytest.raises(NotFound):
            await way.get(request("deleted"), None)

    async def test_many(self, way: Way) -> None:
        """Each name has its own outcome, whether the way has messages for many names or not."""
        objects = Objects(way, Options(retry_wait_s=0.001))
        batches = Batches(objects, objects.put)
        names = [("ways", f"many/{number}") for number in range(70)]
        none = ("ways", "many/none")
        bodies = {name: name[1].encode() * 100 for name in names}
        bodies[names[1]], bodies[names[2]] = b"", DATA * 4
        written = {item[0]: one async for item, one in flat(batches.put(bodies.items()))}
        for name, body in bodies.items():
            one = written[name]
            assert isinstance(one, Written)
            assert (one.etag, one.size) == (hashlib.md5(body, usedforsecurity=False).hexdigest(), len(body))
        got = {name: one async for name, one in flat(batches.get([*names, none]))}
        told = {name: one async for name, one in flat(batches.head([*names, none]))}
        for name, body in bodies.items():
            content, info = got[name], told[name]
            assert isinstance(content, Content)
            assert isinstance(info, ObjectInfo)
            assert (content.data, content.info.etag) == (body, written[name].etag)  # type: ignore[union-attr]
            assert (info.size, info.etag) == (len(body), content.info.etag)
        assert isinstance(got[none], NotFound)
        assert isinstance(told[none], NotFound)
        gone = {name: one async for name, one in flat(batches.delete([*names, none]))}
        assert isinstance(gone.pop(none), NotFound)
        assert list(gone.values()) == [None] * len(names)
        with pytest.raises(NotFound):
            await way.head(ObjectRequest(*names[0]))

    async def test_it_can_be_used_after_it_was_closed(self, way: Way) -> None:
        """Connections are made again."""
        await way.put(request("closed"), BytesBody(b"1"))
        await way.close()
        assert await read(way, request("closed")) == b"1"
