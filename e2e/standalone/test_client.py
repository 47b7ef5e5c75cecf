"""The client library against a store with all of its processes."""

from __future__ import annotations

import asyncio
import hashlib
import io
import multiprocessing
import os
import pickle
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from e2e.standalone.cluster import Cluster
from swiftlet.client import (
    V1,
    AsyncClient,
    ChecksumMismatch,
    Client,
    ClientError,
    Conditions,
    Conflict,
    ConnectionFailed,
    KeystoneName,
    KeystonePassword,
    KeystoneToken,
    LocalError,
    NotFound,
    NotModified,
    Options,
    PreconditionFailed,
    RangeNotSatisfiable,
    Span,
    Token,
    Unauthorized,
)
from swiftlet.client.http import Http, HttpWay
from swiftlet.testing.ways.conformance import WayContract

KIB = 1 << 10
MIB = 1 << 20
SMALL_PIECES = Options(
    segments_above_bytes=3 * MIB,
    segment_bytes=MIB,
    stream_segment_bytes=MIB,
    ranges_above_bytes=3 * MIB,
    range_bytes=MIB,
)
CONTAINER = "client"


def data(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


@pytest.fixture(scope="module")
def login(cluster: Cluster) -> V1:
    return V1(auth_url=cluster.auth_url, user=cluster.user, key=cluster.key)


@pytest.fixture(scope="module")
def store(login: V1) -> Iterator[Client]:
    with Client(login, SMALL_PIECES) as made:
        made.create_container(CONTAINER)
        made.create_container(f"{CONTAINER}_segments")
        yield made


@pytest.fixture
async def asynchronous(store: Client, login: V1) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(login, SMALL_PIECES) as made:
        yield made


class TestHttpWay(WayContract):
    """HTTP does what every way does."""

    @pytest.fixture
    async def way(self, store: Client, login: V1) -> AsyncIterator[HttpWay]:
        """A way to the store."""
        store.create_container("ways")
        made = HttpWay(Http(login, Options()))
        yield made
        await made.close()


def segments(store: Client) -> list[str]:
    return [entry.name for entry in store.list(f"{CONTAINER}_segments")]


@pytest.mark.parametrize("size", [0, 1, 10 * KIB, 2 * MIB + 7])
def test_an_object_comes_back_as_it_was(store: Client, size: int) -> None:
    content = data(size)
    written = store.put(CONTAINER, "plain", content, content_type="image/x", metadata={"Colour": "bläu"})
    assert (written.etag, written.size, written.segments) == (md5(content), size, 0)
    got = store.get(CONTAINER, "plain")
    assert got.data == content
    assert (got.info.size, got.info.content_type, got.info.metadata) == (size, "image/x", {"colour": "bläu"})
    assert store.head(CONTAINER, "plain").etag == md5(content)


@pytest.mark.parametrize("name", ["a b/c?d#e&f=g%41", "für/日本", "a//b/../c/./d", "-", "\U0001f40d'\"<>"])
def test_any_name_is_kept(store: Client, name: str) -> None:
    store.put(CONTAINER, name, name.encode())
    assert store.get(CONTAINER, name).data == name.encode()
    assert [entry.name for entry in store.list(CONTAINER, name)] == [name]
    store.copy((CONTAINER, name), (CONTAINER, f"copy of {name}"))
    assert store.get(CONTAINER, f"copy of {name}").data == name.encode()
    store.delete(CONTAINER, name)
    with pytest.raises(NotFound) as refused:
        store.get(CONTAINER, name)
    assert (refused.value.status, bool(refused.value.request_id)) == (404, True)


def test_sources_of_every_kind(store: Client, tmp_path: Path) -> None:
    content = data(2 * MIB)
    file = tmp_path / "file"
    file.write_bytes(content)

    async def produced() -> AsyncIterator[bytes]:
        for start in range(0, len(content), 100_000):
            yield content[start : start + 100_000]

    def pieces() -> Iterator[bytes]:
        yield from (content[start : start + 77_777] for start in range(0, len(content), 77_777))

    sources: list[Any] = [content, bytearray(content), memoryview(content), file, io.BytesIO(content), pieces()]
    for source in [*sources, produced()]:
        store.put(CONTAINER, "source", source)
        assert store.get(CONTAINER, "source").data == content
    for again in (pieces(), produced()):
        assert store.put(CONTAINER, "source", again, size=len(content)).etag == md5(content)
    assert store.get(CONTAINER, "source").data == content


def test_ranges(store: Client) -> None:
    content = data(100 * KIB)
    store.put(CONTAINER, "ranges", content)
    assert store.get(CONTAINER, "ranges", span=Span(10, 20)).data == content[10:20]
    assert store.get(CONTAINER, "ranges", span=Span(1000)).data == content[1000:]
    assert store.get(CONTAINER, "ranges", span=Span(-7)).data == content[-7:]
    assert store.get(CONTAINER, "ranges", span=Span(10, 20)).info.size == len(content)
    spans = [Span(0, 1), Span(5000, 9000), Span(-1)]
    assert store.get_ranges(CONTAINER, "ranges", spans) == [content[:1], content[5000:9000], content[-1:]]
    with pytest.raises(RangeNotSatisfiable):
        store.get(CONTAINER, "ranges", span=Span(len(content)))


def test_conditions(store: Client) -> None:
    first = store.put(CONTAINER, "conditions", b"1")
    with pytest.raises(PreconditionFailed):
        store.put(CONTAINER, "conditions", b"2", conditions=Conditions(if_none_match="*"))
    with pytest.raises(PreconditionFailed):
        store.put(CONTAINER, "conditions", b"2", conditions=Conditions(if_match=md5(b"other")))
    with pytest.raises(NotModified):
        store.get(CONTAINER, "conditions", conditions=Conditions(if_none_match=first.etag))
    store.put(CONTAINER, "conditions", b"2", conditions=Conditions(if_match=first.etag))
    with pytest.raises(PreconditionFailed):
        store.delete(CONTAINER, "conditions", conditions=Conditions(if_match=first.etag))
    store.delete(CONTAINER, "conditions", conditions=Conditions(if_match=md5(b"2")))
    store.put(CONTAINER, "conditions", b"3", conditions=Conditions(if_none_match="*"))
    with pytest.raises(PreconditionFailed):
        store.put(CONTAINER, "conditions", data(4 * MIB), conditions=Conditions(if_none_match="*"))
    assert store.get(CONTAINER, "conditions").data == b"3"


def test_metadata_containers_and_the_account(store: Client) -> None:
    store.create_container("client-meta", metadata={"Team": "a"})
    store.put("client-meta", "object", b"x", metadata={"One": "1"})
    store.post("client-meta", "object", {"Two": "2"})
    assert store.head("client-meta", "object").metadata == {"two": "2"}
    store.update_container("client-meta", {"Team": "", "Other": "b"})
    assert store.container("client-meta").metadata == {"other": "b"}
    with pytest.raises(Conflict):
        store.delete_container("client-meta")
    store.delete("client-meta", "object")
    assert "client-meta" in [container.name for container in store.containers("client-")]
    store.update_account({"Client-Test": "yes"})
    assert store.account().metadata["client-test"] == "yes"
    store.update_account({"Client-Test": ""})
    store.delete_container("client-meta")
    with pytest.raises(NotFound):
        store.container("client-meta")
    assert store.capabilities()["slo"]["max_manifest_segments"] > 0


def test_listings_have_pages_and_prefixes(store: Client) -> None:
    names = [f"pages/{letter}/{number:02d}" for letter in "ab" for number in range(10)]
    assert [result for _, result in store.put_many(((CONTAINER, name), b"") for name in names)] != []
    listed = [entry.name for entry in store.list(CONTAINER, "pages/", limit=10_000)]
    assert listed == names
    assert [entry.name for entry in store.list(CONTAINER, "pages/", limit=7)] == names[:7]
    store.asynchronous._account._page_rows = 3
    assert [entry.name for entry in store.list(CONTAINER, "pages/")] == names
    assert [entry.name for entry in store.list(CONTAINER, "pages/", limit=7)] == names[:7]
    store.asynchronous._account._page_rows = 20_000
    assert [entry.name for entry in store.list(CONTAINER, "pages/")] == names
    assert store.asynchronous._account._page_rows == 10_000
    tops = list(store.list(CONTAINER, "pages/", delimiter="/"))
    assert [(entry.name, entry.is_prefix) for entry in tops] == [("pages/a/", True), ("pages/b/", True)]
    assert [entry.name for entry in store.list(CONTAINER, "pages/", marker=names[11], end_marker=names[14])] == names[
        12:14
    ]


def test_many_objects_with_errors_among_them(store: Client) -> None:
    names = [(CONTAINER, f"many/{number}") for number in range(30)]
    put = list(store.put_many((name, name[1].encode()) for name in names))
    assert not any(isinstance(result, ClientError) for _, result in put)
    got = dict(store.get_many([*names, (CONTAINER, "many/none")]))
    assert isinstance(got.pop((CONTAINER, "many/none")), NotFound)
    assert {name: content.data for name, content in got.items() if not isinstance(content, ClientError)} == {
        name: name[1].encode() for name in names
    }
    assert all(result is None for _, result in store.delete_many(names))
    assert list(store.list(CONTAINER, "many/")) == []


def test_a_large_file_goes_in_segments_and_comes_back_in_ranges(store: Client, tmp_path: Path) -> None:
    content = data(5 * MIB + 123)
    file, back = tmp_path / "large", tmp_path / "sub" / "back"
    file.write_bytes(content)
    seen: list[tuple[int, int | None]] = []
    written = store.put(CONTAINER, "large", file, content_type="a/b", progress=lambda *moved: seen.append(moved))
    assert (written.segments, written.size, seen[-1]) == (6, len(content), (len(content), len(content)))
    info = store.head(CONTAINER, "large")
    assert (info.is_static_large, info.size, info.content_type) == (True, len(content), "a/b")
    seen.clear()
    done = store.download(CONTAINER, "large", back, progress=lambda *moved: seen.append(moved))
    assert (done.size, done.is_verified, seen[-1][0]) == (len(content), True, len(content))
    assert back.read_bytes() == content
    assert os.listdir(back.parent) == ["back"]
    store.put(CONTAINER, "large", data(5 * MIB, 2))
    assert len([name for name in segments(store) if name.startswith("large/")]) == 5
    store.delete(CONTAINER, "large", with_segments=True)
    assert [name for name in segments(store) if name.startswith("large/")] == []


def test_a_large_plain_object_is_verified_too(store: Client, login: V1, tmp_path: Path) -> None:
    content = data(4 * MIB + 5)
    with Client(login, replace(SMALL_PIECES, segments_above_bytes=1 << 40)) as whole:
        assert whole.put(CONTAINER, "plain-large", content).segments == 0
    done = store.download(CONTAINER, "plain-large", tmp_path / "back")
    assert done.is_verified
    assert (tmp_path / "back").read_bytes() == content


def test_a_long_stream_without_a_size(store: Client) -> None:
    content = data(5 * MIB + 9)
    written = store.put(CONTAINER, "stream", io.BytesIO(content))
    assert (written.size, written.segments) == (len(content), 6)
    with store.open(CONTAINER, "stream") as file:
        assert io.BufferedReader(file).read() == content
    store.delete(CONTAINER, "stream", with_segments=True)


async def test_a_failed_upload_leaves_nothing(asynchronous: AsyncClient, store: Client) -> None:
    async def fails() -> AsyncIterator[bytes]:
        for number in range(5):
            yield data(MIB, number)
        raise ValueError("the source is broken")

    with pytest.raises(ValueError, match="the source is broken"):
        await asynchronous.put(CONTAINER, "broken", fails())
    assert [name for name in segments(store) if name.startswith("broken/")] == []
    with pytest.raises(ValueError, match="the source is broken"):
        await asynchronous.put(CONTAINER, "broken", fails(), size=6 * MIB)
    with pytest.raises(NotFound):
        await asynchronous.head(CONTAINER, "broken")


def test_a_file_that_changes_meanwhile_is_not_stored(store: Client, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(data(4 * MIB))

    def change(moved: int, _: int | None) -> None:
        os.utime(file, ns=(moved, moved))

    with pytest.raises(LocalError, match="has changed"):
        store.put(CONTAINER, "changing", file, progress=change)
    assert [name for name in segments(store) if name.startswith("changing/")] == []
    with pytest.raises(NotFound):
        store.head(CONTAINER, "changing")


async def test_a_cancelled_upload_leaves_nothing(asynchronous: AsyncClient, store: Client) -> None:
    has_begun = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        number = 0
        while True:
            yield data(MIB, number)
            number += 1
            if number == 6:
                has_begun.set()
                await asyncio.Event().wait()

    upload = asyncio.ensure_future(asynchronous.put(CONTAINER, "cancelled", endless()))
    await has_begun.wait()
    upload.cancel()
    with pytest.raises(asyncio.CancelledError):
        await upload
    assert [name for name in segments(store) if name.startswith("cancelled/")] == []


def test_an_upload_is_resumed(store: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = data(5 * MIB, 9)
    file = tmp_path / "file"
    file.write_bytes(content)
    begun, stored, three = [], [], asyncio.Event()
    objects = store.asynchronous._objects
    put = objects.put

    async def counted(request: Any, *arguments: Any) -> Any:
        begun.append(request.name)
        if len(begun) > 3:
            await three.wait()
            raise ConnectionFailed("the network is away")
        written = await put(request, *arguments)
        stored.append(request.name)
        if len(stored) == 3:
            three.set()
        return written

    monkeypatch.setattr(objects, "put", counted)
    with pytest.raises(ConnectionFailed):
        store.put(CONTAINER, "resumed", file, resume=True)
    monkeypatch.undo()
    left = {name for name in segments(store) if name.startswith("resumed/")}
    assert left == set(stored)
    assert store.put(CONTAINER, "resumed", file, resume=True).segments == 5
    assert left <= {name for name in segments(store) if name.startswith("resumed/")}
    assert store.get(CONTAINER, "resumed").data == content
    # A version that is there is not touched by the next attempt at the same file.
    store.put(CONTAINER, "resumed", file, resume=True)
    assert store.get(CONTAINER, "resumed").data == content
    assert len([name for name in segments(store) if name.startswith("resumed/")]) == 5
    store.delete(CONTAINER, "resumed", with_segments=True)


def test_versions_keep_their_segments(store: Client) -> None:
    store.create_container("client-versions", headers={"X-Versions-Enabled": "true"})
    first, second = data(4 * MIB, 1), data(4 * MIB, 2)
    old = store.put("client-versions", "object", first)
    store.put("client-versions", "object", second)
    assert old.version_id
    assert store.get("client-versions", "object", version_id=old.version_id).data == first
    assert store.get("client-versions", "object").data == second


@pytest.mark.parametrize("kind", ["password", "token"])
def test_keystone(store: Client, cluster: Cluster, kind: str) -> None:
    account, _, user = cluster.user.partition(":")
    url = f"{cluster.endpoint}/v3"
    project, name = KeystoneName(name=account), KeystoneName(name=user)
    password = KeystonePassword(auth_url=url, user=name, password=cluster.key, project=project)
    with Client(password) as client:
        client.put(CONTAINER, "keystone", b"k")
        token = client.asynchronous._http._login
        assert token is not None
    if kind == "token":
        with Client(KeystoneToken(auth_url=url, token=token.token, project=project)) as client:
            assert client.get(CONTAINER, "keystone").data == b"k"


def test_a_token_is_renewed(store: Client, login: V1) -> None:
    with Client(login) as client:
        url = client.storage_url()
        known = client.asynchronous._http
        assert known._login is not None
        known._login = replace(known._login, token="AUTH_tk-is-not-valid")
        client.put(CONTAINER, "renewed", b"r")
        known._login = replace(known._login, token="AUTH_tk-is-not-valid")
        client.put(CONTAINER, "renewed", iter([b"r", b"s"]), size=2)
        assert client.get(CONTAINER, "renewed").data == b"rs"
    with Client(Token(storage_url=url, token="AUTH_tk-is-not-valid")) as client, pytest.raises(Unauthorized):
        client.get(CONTAINER, "renewed")
    with Client(replace(login, key="wrong")) as client, pytest.raises(Unauthorized):
        client.get(CONTAINER, "renewed")


def test_a_client_is_pickled(store: Client, login: V1) -> None:
    store.put(CONTAINER, "pickled", b"p")
    with pickle.loads(pickle.dumps(store)) as copy:
        assert copy.get(CONTAINER, "pickled").data == b"p"
    assert login.key not in repr(login)


def read_in_child(store: Client, results: Any) -> None:
    results.put(store.get(CONTAINER, "forked").data)


def test_a_client_works_on_both_sides_of_a_fork(store: Client) -> None:
    store.put(CONTAINER, "forked", b"f")
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    for _ in range(3):
        child = context.Process(target=read_in_child, args=(store, results))
        child.start()
        child.join(60)
        assert child.exitcode == 0
        assert results.get() == b"f"
        assert store.get(CONTAINER, "forked").data == b"f"


async def test_damage_is_noticed(asynchronous: AsyncClient, store: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    await asynchronous.put(CONTAINER, "damaged", b"1234")
    way = asynchronous._objects.way
    get = way.get
    answers: list[int] = []

    class Damaged:
        def __init__(self, stream: Any) -> None:
            self.stream = stream
            self.info = stream.info
            self.digest = None

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for piece in self.stream:
                yield piece.replace(b"1", b"0") if len(answers) < 2 else piece

        async def close(self) -> None:
            await self.stream.close()

    async def damaged(*arguments: Any) -> Damaged:
        answers.append(1)
        return Damaged(await get(*arguments))

    monkeypatch.setattr(way, "get", damaged)
    assert (await asynchronous.get(CONTAINER, "damaged")).data == b"1234"
    answers.clear()
    with pytest.raises(ChecksumMismatch):
        async with asynchronous.open(CONTAINER, "damaged") as reading:
            await reading.read()
