"""What two ways to one store have in common: what one stores, the other reads, lists, counts, copies and so on.

A test class derives from `AgreementContract` and says which two clients. What a replica misses, and that expired
objects and their rows are removed, is for who can stop servers: `swiftlet.main.tests.test_ways_together`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from swiftlet.client.client import AsyncClient
from swiftlet.client.errors import NotFound, TooLarge
from swiftlet.client.values import Span

DATA = bytes(range(256)) * 40
LARGE = DATA * 150
"""More than goes in one frame of the transport."""
PATIENCE_S = 60.0


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what other processes do in the background."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110 - other processes set no event
            await asyncio.sleep(0.05)


async def names_in(store: AsyncClient, container: str) -> list[str]:
    """Return the names that a listing has."""
    return [entry.name async for entry in store.list(container)]


async def is_gone(store: AsyncClient, container: str, name: str) -> bool:
    """Return whether neither HEAD nor GET finds an object; they have to agree."""
    found = []
    for ask in (store.head, store.get):
        try:
            await ask(container, name)
        except NotFound:
            found.append(False)
        else:
            found.append(True)
    # In the second in which it expires, the one may still find it.
    return not found[1]


class AgreementContract:
    """Derive from it, with fixtures `pair` (two clients) and `container` (the name of one that is new and empty)."""

    lives_s = 5
    """Seconds after which objects expire: more than a request takes on a busy machine."""

    async def test_what_one_stores_the_other_reads(self, pair: tuple[AsyncClient, AsyncClient], container: str) -> None:
        """Bytes, metadata and ETag; and the latest of what both have stored under a name."""
        for one, other in (pair, pair[::-1]):
            for data in (b"", DATA, LARGE):
                written = await one.put(container, "a", data, content_type="text/x-a", metadata={"Colour": "blue"})
                got = await other.get(container, "a")
                assert (got.data, got.info.etag) == (data, written.etag)
                info = await other.head(container, "a")
                assert (info.size, info.content_type, info.metadata) == (len(data), "text/x-a", {"colour": "blue"})
            assert (await other.get(container, "a", span=Span(100, 20_000))).data == LARGE[100:20_000]

    async def test_what_one_deletes_the_other_does_not_find(
        self, pair: tuple[AsyncClient, AsyncClient], container: str
    ) -> None:
        """And what the other stores then is there again."""
        for one, other in (pair, pair[::-1]):
            await one.put(container, "deleted", DATA)
            assert (await other.get(container, "deleted")).data == DATA
            await other.delete(container, "deleted")
            assert await is_gone(one, container, "deleted")
            with pytest.raises(NotFound):
                await one.delete(container, "deleted")

    async def test_metadata_that_one_replaces_the_other_reads(
        self, pair: tuple[AsyncClient, AsyncClient], container: str
    ) -> None:
        """A POST through either way leaves the bytes as the other way has stored them."""
        for one, other in (pair, pair[::-1]):
            await one.put(container, "posted", DATA, metadata={"Colour": "blue"})
            await other.post(container, "posted", {"Taste": "sour"})
            got = await one.get(container, "posted")
            assert (got.data, got.info.metadata) == (DATA, {"taste": "sour"})

    async def test_both_are_listed_and_counted(self, pair: tuple[AsyncClient, AsyncClient], container: str) -> None:
        """With the sizes of what was stored last; what is deleted is neither."""
        one, other = pair
        await one.put(container, "one", DATA)
        await other.put(container, "other", DATA * 2)
        await one.put(container, "other, then one", DATA)
        await other.put(container, "one, then other", b"")
        await other.put(container, "other, then one", b"1")
        await one.put(container, "one, then other", b"22")
        await other.put(container, "gone", DATA)
        await one.delete(container, "gone")
        expected = {"one": len(DATA), "other": 2 * len(DATA), "other, then one": 1, "one, then other": 2}
        for store in (other, one):

            async def is_listed(store: AsyncClient = store) -> bool:
                return {entry.name: entry.size async for entry in store.list(container)} == expected

            async def is_counted(store: AsyncClient = store) -> bool:
                info = await store.container(container)
                return (info.objects, info.size) == (len(expected), sum(expected.values()))

            await until(is_listed)
            await until(is_counted)

    async def test_what_one_stores_counts_in_the_quota_of_the_other(
        self, pair: tuple[AsyncClient, AsyncClient], container: str
    ) -> None:
        """Once its row is there; before that a way may store no more than its grants have of the quota."""
        one, other = pair
        await one.update_container(container, {"Quota-Count": "4"})
        for number, store in enumerate((one, other, other, one)):
            await store.put(container, f"{number}", DATA)

        async def is_counted() -> bool:
            return (await one.container(container)).objects == 4

        await until(is_counted)
        for store in pair:

            async def is_refused(store: AsyncClient = store) -> bool:
                try:
                    await store.put(container, "more", DATA)
                except TooLarge:
                    return True
                # What is remembered of the container may be a moment old.
                await store.delete(container, "more")
                return False

            await until(is_refused)
        await until(is_counted)

    async def test_both_tell_how_far_they_are(self, pair: tuple[AsyncClient, AsyncClient], container: str) -> None:
        """Bytes only get more, and are all of them in the end, in both directions."""
        for store in pair:
            for data in (DATA, LARGE):
                stored, read = list[tuple[int, int | None]](), list[tuple[int, int | None]]()
                await store.put(container, "progress", data, progress=lambda *moved, to=stored: to.append(moved))
                await store.get(container, "progress", progress=lambda *moved, to=read: to.append(moved))
                for told in (stored, read):
                    assert told == sorted(told)
                    assert told[-1][0] == len(data)

    async def test_both_make_versions(self, pair: tuple[AsyncClient, AsyncClient], container: str) -> None:
        """In the order in which they were stored; either reads those of the other, and takes its deletion back."""
        one, other = pair
        await one.put(container, "versions", b"before there were any")
        await one.update_container(container, headers={"X-Versions-Enabled": "true"})
        for number, store in enumerate((one, other, one, other)):
            await store.put(container, "versions", f"{number}".encode())
        assert [(await store.get(container, "versions")).data for store in pair] == [b"3", b"3"]
        versions = [entry.version_id async for entry in one.list(container, versions=True)]
        for store in pair:
            bodies = [(await store.get(container, "versions", version_id=version)).data for version in versions]
            assert bodies == [b"3", b"2", b"1", b"0", b"before there were any"]
        await other.delete(container, "versions")
        assert await is_gone(one, container, "versions")
        assert (await one.get(container, "versions", version_id=versions[0])).data == b"3"

    async def test_what_one_stores_the_other_copies(
        self, pair: tuple[AsyncClient, AsyncClient], container: str
    ) -> None:
        """A copy has the metadata, and is an object of its own."""
        for one, other in (pair, pair[::-1]):
            for data in (DATA, LARGE):
                written = await one.put(container, "source", data, content_type="x/y", metadata={"Colour": "blue"})
                await other.copy((container, "source"), (container, "target"), metadata={"Taste": "sour"})
                for store in pair:
                    got = await store.get(container, "target")
                    assert (got.data, got.info.etag) == (data, written.etag)
                    assert (got.info.content_type, got.info.metadata) == ("x/y", {"colour": "blue", "taste": "sour"})
                await one.delete(container, "source")
                assert (await one.get(container, "target")).data == data
                await one.copy((container, "target"), (container, "source"))
                await other.put(container, "target", b"another one")
                assert (await other.get(container, "source")).data == data

    async def test_what_one_lets_expire_the_other_does_not_find_then(
        self, pair: tuple[AsyncClient, AsyncClient], container: str
    ) -> None:
        """By the time of a PUT, and by that of a POST to what was stored without; a new PUT takes the time away."""
        one, other = pair

        def soon() -> dict[str, str]:
            # Anew for each request: on a busy machine the time of the first would have passed before the last.
            return {"X-Delete-At": str(int(time.time()) + self.lives_s)}

        begun = int(time.time())
        far = {"X-Delete-At": str(int(time.time()) + 3600)}
        await one.put(container, "put/one", DATA, headers=soon())
        await other.put(container, "put/other", DATA, headers=soon())
        for name, store, poster in (("posted/one", one, other), ("posted/other", other, one)):
            await store.put(container, name, DATA)
            await poster.post(container, name, {}, headers=soon())
        for name, store, after in (("stays/one", one, other), ("stays/other", other, one)):
            await store.put(container, name, b"older", headers=soon())
            await after.put(container, name, DATA)
        await one.put(container, "far", DATA, headers=far)
        assert (await other.head(container, "far")).headers["x-delete-at"] == far["X-Delete-At"]
        assert (await other.get(container, "far")).data == DATA
        for name in ("put/one", "put/other", "posted/one", "posted/other"):
            for store in pair:

                async def has_expired(store: AsyncClient = store, name: str = name) -> bool:
                    return await is_gone(store, container, name)

                await until(has_expired)
            assert time.time() >= begun + self.lives_s, f"{name} was there until its time"
        for name in ("stays/one", "stays/other", "far"):
            assert [(await store.get(container, name)).data for store in pair] == [DATA, DATA]
