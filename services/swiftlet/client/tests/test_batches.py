"""Batches: which names go together, what is done singly, sources that are slow, heavy or fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from swiftlet.client.batches import MAX_NAMES, Batches, Name, flat, some_of, weight
from swiftlet.client.errors import ConnectionFailed, LocalError, NotFound
from swiftlet.client.objects import Objects
from swiftlet.client.options import Options
from swiftlet.client.values import Content, ObjectInfo, Written
from swiftlet.client.way import Deletion
from swiftlet.testing.ways.memory import Fault, MemoryWay


@dataclass
class SomeOfMany:
    """Does the names of `done`, and leaves the others to single requests."""

    way: MemoryWay
    done: frozenset[str]
    asked: list[tuple[str, int]] = field(default_factory=list)
    """The container of each message, and of how many names it was."""
    deletions: dict[str, Deletion] = field(default_factory=dict)

    async def get(self, container: str, names: Sequence[str]) -> list[Content | None]:
        self.asked.append((container, len(names)))
        return [Content(b"many", ObjectInfo(size=4, etag="")) if name in self.done else None for name in names]

    async def head(self, container: str, names: Sequence[str]) -> list[ObjectInfo | None]:
        self.asked.append((container, len(names)))
        return [ObjectInfo(size=4, etag="many") if name in self.done else None for name in names]

    async def put(self, container: str, objects: Sequence[tuple[str, bytes]]) -> list[Written | None]:
        self.asked.append((container, len(objects)))
        return [Written("many", len(data)) if name in self.done else None for name, data in objects]

    async def delete(self, container: str, names: Sequence[str]) -> list[Deletion]:
        self.asked.append((container, len(names)))
        return [self.deletions.get(name, Deletion.SINGLY) for name in names]


def made(*done: str, **options: Any) -> tuple[Batches, MemoryWay, SomeOfMany]:
    """Return batches over a way whose messages do these names."""
    way = MemoryWay()
    way.many = many = SomeOfMany(way, frozenset(done))
    objects = Objects(way, Options(retry_wait_s=0.001, **options))
    return Batches(objects, objects.put), way, many


async def collected(groups: AsyncGenerator[list[tuple[Any, Any]], None]) -> dict[Any, Any]:
    return {item: outcome async for item, outcome in flat(groups)}


async def test_what_a_message_does_not_do_is_done_singly() -> None:
    batches, way, many = made("a")
    way.objects["c", "b"] = b"single"
    found = await collected(batches.get([("c", "a"), ("c", "b"), ("c", "none"), ("d", "a")]))
    assert [found["c", "a"].data, found["c", "b"].data, found["d", "a"].data] == [b"many", b"single", b"many"]
    assert isinstance(found["c", "none"], NotFound)
    assert many.asked == [("c", 3), ("d", 1)]
    told = await collected(batches.head([("c", "a"), ("c", "b")]))
    assert [told["c", "a"].etag, told["c", "b"].size] == ["many", 6]


async def test_single_requests_are_repeated_as_always() -> None:
    batches, way, _ = made()
    way.objects["c", "a"] = b"1"
    way.faults.append(Fault(ConnectionFailed("the connection broke")))
    assert (await collected(batches.get([("c", "a")])))["c", "a"].data == b"1"
    assert way.calls == ["GET", "GET"]


async def test_deletions_that_may_have_been_done_are_repeated() -> None:
    batches, way, many = made()
    way.objects["c", "single"] = way.objects["c", "half"] = b"1"
    many.deletions = {
        "done": Deletion.DONE,
        "absent": Deletion.ABSENT,
        "half": Deletion.UNCERTAIN,
        "gone": Deletion.UNCERTAIN,
    }
    names = [("c", name) for name in ("done", "absent", "half", "gone", "single", "none")]
    found = await collected(batches.delete(names))
    failed = [name for (_, name), outcome in found.items() if isinstance(outcome, NotFound)]
    assert (failed, way.objects) == (["absent", "none"], {})


async def test_small_bodies_go_together_and_others_singly(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"of a file")
    (tmp_path / "large").write_bytes(bytes(300_000))
    batches, way, many = made("a", "file", "view")
    items: list[Any] = [
        (("c", "a"), b"1"),
        (("c", "file"), tmp_path / "file"),
        (("c", "view"), memoryview(b"2")),
        (("c", "large"), bytes(300_000)),
        (("c", "large-file"), tmp_path / "large"),
        (("c", "none"), tmp_path / "none"),
        (("c", "folder"), tmp_path),
    ]
    found = {item[0][1]: outcome for item, outcome in [one async for one in flat(batches.put(items))]}
    assert many.asked == [("c", 3)]
    assert {name for _, name in way.objects} == {"large", "large-file"}
    stored, *failed = (found[name] for name in ("file", "none", "folder"))
    assert isinstance(stored, Written)
    assert (stored.etag, [isinstance(one, LocalError) for one in failed]) == ("many", [True, True])
    small, _, few = made("a", segments_above_bytes=1)
    assert len([one async for one in flat(small.put([(("c", "a"), b"22")]))]) == 1
    assert few.asked == [("c", 0)], "the options say that it is large"


async def test_batches_have_limits() -> None:
    batches, _, many = made(*map(str, range(200)))
    names = [("c", str(number)) for number in range(150)]
    assert len(await collected(batches.get(names))) == 150

    async def source() -> AsyncIterator[Name]:
        for name in names:
            yield name

    assert len(await collected(batches.get(source()))) == 150
    assert [count for _, count in many.asked] == [MAX_NAMES, MAX_NAMES, 150 - 2 * MAX_NAMES] * 2
    many.asked.clear()
    heavy = [(("c", str(number)), bytes(100_000)) for number in range(50)]
    assert len([one async for one in flat(batches.put(heavy))]) == 50
    assert max(count for _, count in many.asked) == 21, "2 MiB and the item that exceeds them"
    assert len(some_of(iter(range(100)), lambda _: 0, within_s=-1)) == 1, "a slow source gives what it has"
    assert [weight((("c", "a"), source)) for source in (b"12", bytearray(3), Path("a"))] == [2, 3, 0]


async def test_names_that_are_slow_to_come_are_not_waited_for() -> None:
    batches, _, many = made("a", "b")
    gone_on = asyncio.Event()

    async def source() -> AsyncIterator[Name]:
        yield "c", "a"
        await gone_on.wait()
        yield "c", "b"

    found = batches.get(source())
    assert [name for (_, name), _ in await anext(found)] == ["a"]
    gone_on.set()
    assert [name for (_, name), _ in await anext(found)] == ["b"]
    assert await anext(found, None) is None
    assert many.asked == [("c", 1), ("c", 1)]


async def test_a_source_that_fails_ends_the_batches_with_its_error() -> None:
    batches, _, _ = made("a")

    async def source() -> AsyncIterator[Name]:
        yield "c", "a"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await collected(batches.get(source()))


async def test_who_wants_no_more_ends_the_source() -> None:
    batches, _, _ = made("a")
    ended = asyncio.Event()

    async def source() -> AsyncIterator[Name]:
        try:
            yield "c", "a"
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    found = batches.get(source())
    await anext(found)
    await found.aclose()
    await ended.wait()
