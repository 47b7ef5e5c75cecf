"""Many objects at a time: where the way has messages for many names, these go first, some tens of names in each.

What a message does not do is done by single requests, as are all names where the way has no such messages. Each name
has its own outcome: an error of one does not end the others. Outcomes come in groups, those of a message together.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TypeAlias, TypeVar

from swiftlet.client.bodies import Body, Source, body_of
from swiftlet.client.concurrency import in_thread, run_all, run_each
from swiftlet.client.errors import ClientError, status_error
from swiftlet.client.objects import Objects
from swiftlet.client.values import Content, ObjectInfo, ObjectRequest, Written
from swiftlet.client.way import MAX_SMALL_BYTES, Deletion, Many

T = TypeVar("T")
R = TypeVar("R")
Name: TypeAlias = tuple[str, str]
"""A container and the name of an object in it."""
Item: TypeAlias = tuple[Name, Source]
"""A name, and what is stored under it."""
Names: TypeAlias = Iterable[Name] | AsyncIterable[Name]
Groups: TypeAlias = AsyncGenerator[list[tuple[T, R | ClientError]], None]
"""Items with their outcomes, as they come."""
MAX_NAMES = 64
"""Names that are asked for at once."""
_MAX_BYTES = 2 << 20
"""Bytes of bodies in memory after which no further item is taken for a batch."""
_MAX_BATCHES = 2
"""Batches that are under way at a time."""
Some: TypeAlias = Callable[[Many, str, list[T]], Awaitable[Mapping[int, R | ClientError]]]
"""Asks for items of a container at once; returns the outcomes of those that need no single request, by number."""


class Batches:
    """Gets, describes, stores and deletes many objects."""

    def __init__(self, objects: Objects, put: Callable[[ObjectRequest, Body], Awaitable[Written]]) -> None:
        """Do singly by these what has to be done so; `put` takes bodies of any size."""
        self._objects = objects
        self._put = put
        self._at_once = objects.options.concurrency

    def get(self, names: Names) -> Groups[Name, Content]:
        """Yield names with their contents, or with their errors."""

        async def some(many: Many, container: str, names: list[Name]) -> Mapping[int, Content]:
            return _known(await many.get(container, [name for _, name in names]))

        return self._run(names, lambda name: name, lambda name: self._objects.get(ObjectRequest(*name)), some)

    def head(self, names: Names) -> Groups[Name, ObjectInfo]:
        """Yield names with what the store tells of them, or with their errors."""

        async def some(many: Many, container: str, names: list[Name]) -> Mapping[int, ObjectInfo]:
            return _known(await many.head(container, [name for _, name in names]))

        return self._run(names, lambda name: name, lambda name: self._objects.head(ObjectRequest(*name)), some)

    def put(self, items: Iterable[Item] | AsyncIterable[Item]) -> Groups[Item, Written]:
        """Store objects, and yield the items with what has come of them."""

        async def some(many: Many, container: str, items: list[Item]) -> Mapping[int, Written]:
            small: list[tuple[int, bytes]] = []
            for number, (_, source) in enumerate(items):
                data = await self._small(source)
                if data is not None:
                    small.append((number, data))
            written = await many.put(container, [(items[number][0][1], data) for number, data in small])
            return {small[at][0]: one for at, one in _known(written).items()}

        async def one(item: Item) -> Written:
            return await self._put(ObjectRequest(*item[0]), body_of(item[1]))

        return self._run(items, lambda item: item[0], one, some, weight)

    def delete(self, names: Names) -> Groups[Name, None]:
        """Delete objects, and yield the names with None, or with their errors."""

        async def some(many: Many, container: str, names: list[Name]) -> Mapping[int, ClientError | None]:
            found: dict[int, ClientError | None] = {}
            for number, deletion in enumerate(await many.delete(container, [name for _, name in names])):
                request = ObjectRequest(*names[number])
                if deletion is Deletion.DONE:
                    found[number] = None
                elif deletion is Deletion.ABSENT:
                    found[number] = status_error(404, "Not Found", f"DELETE {request}")
                elif deletion is Deletion.UNCERTAIN:
                    try:
                        await self._objects.delete(request, uncertain=True)
                        found[number] = None
                    except ClientError as error:
                        found[number] = error
            return found

        return self._run(names, lambda name: name, lambda name: self._objects.delete(ObjectRequest(*name)), some)

    async def _small(self, source: Source) -> bytes | None:
        """Return a source's bytes if they are few, and can be read again: then it may be one of many."""
        most = min(MAX_SMALL_BYTES, self._objects.options.segments_above_bytes)
        if isinstance(source, (bytes, bytearray, memoryview)):
            size = memoryview(source).nbytes
            return (source if isinstance(source, bytes) else bytes(source)) if size <= most else None
        if not isinstance(source, os.PathLike):
            return None
        path = Path(source)

        def read() -> bytes | None:
            if not path.is_file():
                return None
            with path.open("rb") as file:
                data = file.read(most + 1)
            return data if len(data) <= most else None

        try:
            return await in_thread(read)
        except OSError:
            # A single request says what is the matter with it.
            return None

    async def _run(
        self,
        items: Iterable[T] | AsyncIterable[T],
        name_of: Callable[[T], Name],
        one: Callable[[T], Awaitable[R]],
        some: Some[T, R],
        weigh: Callable[[T], int] = lambda item: 0,
    ) -> Groups[T, R]:
        many = self._objects.way.many
        if many is None:
            async with aclosing(run_each(items, one, self._at_once)) as ended:
                async for pair in ended:
                    yield [pair]
            return

        async def batch(taken: list[T]) -> list[tuple[T, R | ClientError]]:
            outcomes: dict[int, R | ClientError] = {}
            containers: dict[str, list[int]] = {}
            for number, item in enumerate(taken):
                containers.setdefault(name_of(item)[0], []).append(number)
            for container, numbers in containers.items():
                found = await some(many, container, [taken[number] for number in numbers])
                outcomes.update({numbers[at]: outcome for at, outcome in found.items()})

            async def singly(number: int) -> None:
                try:
                    outcomes[number] = await one(taken[number])
                except ClientError as error:
                    outcomes[number] = error

            await run_all([number for number in range(len(taken)) if number not in outcomes], singly, self._at_once)
            return [(item, outcomes[number]) for number, item in enumerate(taken)]

        async with aclosing(run_each(_taken(items, weigh), batch, _MAX_BATCHES)) as batches:
            async for _, outcome in batches:
                if isinstance(outcome, ClientError):
                    raise outcome
                yield outcome


def _known(found: Sequence[R | None]) -> dict[int, R]:
    return {number: one for number, one in enumerate(found) if one is not None}


async def flat(groups: AsyncGenerator[list[T], None]) -> AsyncGenerator[T, None]:
    """Yield what is in groups, one after the other."""
    async with aclosing(groups):
        async for group in groups:
            for one in group:
                yield one


def weight(item: Item) -> int:
    """Return the bytes that an item has in memory."""
    source = item[1]
    return memoryview(source).nbytes if isinstance(source, (bytes, bytearray, memoryview)) else 0


def some_of(iterator: Iterator[T], weigh: Callable[[T], int], within_s: float = math.inf) -> list[T]:
    """Return the next items, up to `MAX_NAMES` and to the first that makes them heavy; of a slow source fewer."""
    until = time.monotonic() + within_s
    taken: list[T] = []
    left = _MAX_BYTES
    for item in iterator:
        taken.append(item)
        left -= weigh(item)
        if len(taken) == MAX_NAMES or left <= 0 or time.monotonic() > until:
            break
    return taken


async def _taken(items: Iterable[T] | AsyncIterable[T], weigh: Callable[[T], int]) -> AsyncGenerator[list[T], None]:
    """Yield up to `MAX_NAMES` items at a time; of a source that is slow, those that are there."""
    if not isinstance(items, AsyncIterable):
        iterator = iter(items)
        while some := some_of(iterator, weigh):
            yield some
        return
    here: list[T] = []
    news, room = asyncio.Event(), asyncio.Event()

    async def feed() -> None:
        left = _MAX_BYTES
        async for item in items:
            here.append(item)
            left -= weigh(item)
            news.set()
            if len(here) >= MAX_NAMES or left <= 0:
                room.clear()
                await room.wait()
                left = _MAX_BYTES

    feeding = asyncio.ensure_future(feed())
    feeding.add_done_callback(lambda _: news.set())
    try:
        while True:
            await news.wait()
            some, here[:] = here[:], []
            news.clear()
            room.set()
            if some:
                yield some
            elif feeding.done():
                feeding.result()
                return
            if feeding.done():
                news.set()
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
