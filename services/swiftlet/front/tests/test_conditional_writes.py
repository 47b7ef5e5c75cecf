"""PUTs with `If-None-Match: *` through the front: the same answers as Python's, wherever the object is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path as Directory

import pytest

from swiftlet.api.tests.large import put_manifest, put_segments
from swiftlet.api.tests.proxy import Answer
from swiftlet.front.tests.conftest import EACH_WAY, PATIENCE_S, FrontedProxy, fronted_proxy, until
from swiftlet.front.tests.test_deletions import COLD, path_of
from swiftlet.front.tests.test_writes import OF_ONE_ANSWER, TYPE, listed, write
from swiftlet.main.certificates import Certificates
from swiftlet.placement.plan import ANYWHERE, Place
from swiftlet.placement.tests.cluster import MemoryCluster, memory_cluster
from swiftlet.ring.model import Device, WriteQuorum

ONLY_NEW = {**TYPE, "If-None-Match": "*"}


async def put(fronted: FrontedProxy, name: str, more: dict[str, str] | None = None, data: bytes = b"new") -> Answer:
    return await fronted.proxy.call("PUT", f"c/{name}", ONLY_NEW | (more or {}), data)


async def by_front(fronted: FrontedProxy, name: str, data: bytes = b"new") -> Answer:
    """The answer of the front, which has to be the one that answers."""
    fronted.running.routes.tell(0)
    await fronted.grant_writes()
    before = fronted.answered
    answer = await put(fronted, name, data=data)
    # The front counts a request after its client has the answer.
    await until(lambda: fronted.answered > before)
    return answer


async def by_python(fronted: FrontedProxy, name: str, more: dict[str, str] | None = None) -> Answer:
    """The answer of Python, to which the front hands the request over."""
    fronted.running.routes.tell(0)
    await fronted.grant_writes()
    before = await fronted.noted()
    answer = await put(fronted, name, more)
    # What the front answers is counted by then: the second request is behind the first on its connection.
    assert (await fronted.proxy.call("GET", "c", query="limit=1")).status in {200, 204}
    assert fronted.answered == before
    return answer


def shown(answer: Answer) -> tuple[int, dict[str, str], bytes]:
    return answer.status, {k: v for k, v in answer.headers.items() if k not in OF_ONE_ANSWER}, answer.body


@EACH_WAY
async def test_each_twice(fronted: FrontedProxy) -> None:
    """By the front, and with a header that makes it Python's: the same answers, and the same is left."""
    await write(fronted)
    await fronted.proxy.call("PUT", "c/target", TYPE, b"target")
    entries = await put_segments(fronted.proxy, [b"a" * 10, b"b"])

    async def stored(name: str) -> None:
        assert (await fronted.proxy.call("PUT", f"c/{name}", TYPE, b"old")).status == 201

    async def gone(name: str) -> None:
        await stored(name)
        assert (await fronted.proxy.call("DELETE", f"c/{name}", COLD)).status == 204

    async def gone_by_front(name: str) -> None:
        await stored(name)
        assert (await fronted.proxy.call("DELETE", f"c/{name}")).status == 204

    async def back_again(name: str) -> None:
        await gone_by_front(name)
        await stored(name)

    async def posted(name: str) -> None:
        await stored(name)
        assert (await fronted.proxy.call("POST", f"c/{name}", {"X-Object-Meta-A": "b"})).status == 202

    async def big(name: str) -> None:
        assert (await fronted.proxy.call("PUT", f"c/{name}", TYPE, bytes(100_000))).status == 201

    async def link(name: str) -> None:
        assert (await fronted.proxy.call("PUT", f"c/{name}", {"X-Symlink-Target": "c/target"})).status == 201

    async def broken_link(name: str) -> None:
        assert (await fronted.proxy.call("PUT", f"c/{name}", {"X-Symlink-Target": "c/nothing"})).status == 201

    async def manifest(name: str) -> None:
        assert (await put_manifest(fronted.proxy, entries, name)).status == 201

    async def nothing(name: str) -> None:
        return

    there = (stored, back_again, posted, big, link, manifest)
    cases = [(prepare.__name__, prepare, 412) for prepare in there]
    cases += [(prepare.__name__, prepare, 201) for prepare in (nothing, gone, gone_by_front)]
    cases += [("broken-link", broken_link, 412)]
    cases += [(name, nothing, 201) for name in ("a%20name/%C3%A4%22%5C%0A", "d.o.t.s..", "a//b/", "%2F")]
    cases += [("%ff", nothing, 412), ("x" * 1025, nothing, 400)]
    for at, (name, prepare, status) in enumerate(cases):
        found = []
        for turn, more in enumerate(({}, COLD)):
            # `%2F` and a name too long stay as they are.
            own = name if status == 400 or name.startswith("%") else f"{at}-{turn}-{name}"
            if own == name and turn:
                assert (await fronted.proxy.call("DELETE", f"c/{own}", COLD)).status in {204, 412, 400}
            await prepare(own)
            answer = await put(fronted, own, more)
            read = await fronted.proxy.call("GET", f"c/{own}", query="x=cold")
            row = (await listed(fronted)).get(own, {})
            found.append((shown(answer), read.status, read.body if read.status == 200 else b"", row.get("hash")))
        assert found[0] == found[1], name
        assert found[0][0][0] == status, name


@EACH_WAY
async def test_who_answers(fronted: FrontedProxy) -> None:
    await write(fronted)
    assert (await by_front(fronted, "a")).status == 201
    assert (await by_front(fronted, "a", b"other")).status == 412
    assert (await fronted.proxy.call("DELETE", "c/a")).status == 204
    assert (await by_front(fronted, "a", b"again")).status == 201
    assert (await by_front(fronted, "a", bytes(100_000))).status == 412
    assert (await fronted.proxy.call("GET", "c/a")).body == b"again"
    assert (await by_front(fronted, "long", bytes(100_000))).status == 201
    assert {"a", "long"} <= set(await listed(fronted))
    assert (await fronted.proxy.call("PUT", "c/link", {"X-Symlink-Target": "c/nothing"})).status == 201
    assert (await by_python(fronted, "link")).status == 412


@EACH_WAY
async def test_forms_of_the_condition(fronted: FrontedProxy) -> None:
    """Whatever does not say plainly that there must be none is Python's."""
    await write(fronted, b"stays")
    for value in ('"*"', 'W/"*"', "*, *", '*, "x"', "x", '"x"'):
        answers = [await by_python(fronted, "o", {"If-None-Match": value} | more) for more in ({}, COLD)]
        assert shown(answers[0]) == shown(answers[1]), value
        assert answers[0].status in {400, 412}
    for more in ({"If-Match": "*"}, {"If-Unmodified-Since": "Thu, 01 Jan 2015 00:00:00 GMT"}):
        answers = [await by_python(fronted, "o", more | cold) for cold in ({}, COLD)]
        assert shown(answers[0]) == shown(answers[1]), more
    assert (await fronted.proxy.call("GET", "c/o")).body == b"stays"


@EACH_WAY
async def test_who_may_not_read_learns_nothing(fronted: FrontedProxy) -> None:
    await write(fronted)
    sue = fronted.proxy.token_of("other:sue")
    for access, statuses in (
        ({"X-Container-Write": "other:sue"}, (403, 403)),
        ({"X-Container-Read": "other:sue"}, (201, 412)),
        ({"X-Container-Read": ""}, (403, 403)),
        ({"X-Container-Write": ""}, (403, 403)),
    ):
        assert (await fronted.proxy.call("POST", "c", access)).status == 204
        for turn in range(3):
            # With a grant to write, which is made of the first of them at the latest.
            assert (await fronted.proxy.call("PUT", "c/hers", TYPE | sue, b"x")).status in {201, 403}
            name = f"{len(access)}-{turn}-{'-'.join(access.values())}"
            for more in (sue, sue | COLD):
                own = f"{name}-{len(more)}"
                assert ((await put(fronted, own, more)).status, (await put(fronted, own, more)).status) == statuses


@EACH_WAY
async def test_one_object_from_many_clients(fronted: FrontedProxy) -> None:
    """One of them has stored it at least; of those who come later none does."""
    await write(fronted)
    for turn in range(5):
        name = f"shared{turn}"
        answers = await asyncio.gather(*(put(fronted, name, data=b"%d" % number) for number in range(10)))
        assert {answer.status for answer in answers} <= {201, 412}
        stored = {b"%d" % number for number, answer in enumerate(answers) if answer.status == 201}
        assert (await fronted.proxy.call("GET", f"c/{name}")).body in stored
        answers = await asyncio.gather(*(put(fronted, name, data=b"late") for _ in range(10)))
        assert {answer.status for answer in answers} == {412}
        assert (await fronted.proxy.call("GET", f"c/{name}")).body in stored


@EACH_WAY
async def test_a_connection_that_is_kept(fronted: FrontedProxy) -> None:
    """Whatever the answer, what follows a request on its connection is a request."""
    await write(fronted)
    await fronted.grant_writes()
    token, prefix = fronted.proxy.token["X-Auth-Token"], "/v1/AUTH_test/c/"
    fields = f"Host: h\r\nX-Auth-Token: {token}\r\n"
    sent = []
    for name, data in (("short", b"12345"), ("long", bytes(100_000))):
        head = f"PUT {prefix}{name} HTTP/1.1\r\n{fields}If-None-Match: *\r\nContent-Type: a/b\r\n"
        one = f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data
        sent += [one, one, one]
    reader, writer = await fronted.connect()
    writer.write(b"".join(sent) + f"GET {prefix}short HTTP/1.1\r\n{fields}Connection: close\r\n\r\n".encode())
    async with asyncio.timeout(PATIENCE_S):
        answers = await reader.read()
    writer.close()
    statuses = [part.split(b" ")[0] for part in answers.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"201", b"412", b"412", b"201", b"412", b"412", b"200"]
    assert answers.endswith(b"\r\n\r\n12345")


def repeated(fronted: FrontedProxy, before: Callable[[], None] = lambda: None) -> None:
    """Have Python repeat what devices have stored, as when its rows can't be delivered."""
    running = fronted.running

    def take() -> None:
        tokens = [token for batch in running.front.made() for token in batch[0]]
        if tokens:
            before()
            running.front.listed(tokens, False)

    running.row_batches.take = take  # type: ignore[method-assign]


@EACH_WAY
async def test_what_was_begun_is_no_reason_to_refuse(with_pythons_rows: FrontedProxy, cluster: MemoryCluster) -> None:
    """Python finds the version that the front has stored for the same request, and stores it once more."""
    fronted = with_pythons_rows
    await write(fronted)
    await fronted.grant_writes()
    repeated(fronted)
    answer = await put(fronted, "begun", data=b"mine")
    assert answer.status == 201
    assert (await fronted.proxy.call("GET", "c/begun")).body == b"mine"
    assert "begun" in await listed(fronted)
    # That is so for this one request.
    assert (await put(fronted, "begun", COLD)).status == 412


@EACH_WAY
async def test_what_others_have_stored_meanwhile_is(with_pythons_rows: FrontedProxy, cluster: MemoryCluster) -> None:
    fronted = with_pythons_rows
    await write(fronted)
    await fronted.grant_writes()

    def store() -> None:
        second = (fronted.proxy.api.clock.next().value >> 14) / 100_000 + 1
        for device in cluster.primaries(path_of("theirs")):
            cluster.place(device, second, b"theirs", path_of("theirs"))

    repeated(fronted, store)
    assert (await put(fronted, "theirs", data=b"mine")).status == 412
    assert (await fronted.proxy.call("GET", "c/theirs")).body == b"theirs"


@pytest.fixture
async def spread(tmp_path: Directory, certificate: Certificates | None) -> AsyncIterator[FrontedProxy]:
    """A front before more devices than have a replica."""
    async with (
        memory_cluster(tmp_path, devices=7) as cluster,
        fronted_proxy(cluster, tmp_path, certificate=certificate, timeouts_s=(2.0, 0.5)) as fronted,
    ):
        await cluster.make_container()
        yield fronted


def place(
    fronted: FrontedProxy, name: str, objects: Iterable[tuple[int, int]], deletions: Iterable[tuple[int, int]]
) -> None:
    """Objects and deletions, each by the number of its device (primaries first) and its time."""
    cluster = fronted.proxy.cluster
    devices = (*cluster.primaries(path_of(name)), *cluster.handoffs(path_of(name)))
    for at, second in objects:
        cluster.place(devices[at], second, b"old", path_of(name))
    for at, second in deletions:
        cluster.place_tombstone(devices[at], second, path_of(name))


@pytest.mark.parametrize(
    ("objects", "deletions", "status"),
    [
        ([(3, 5)], [], 412),
        ([(5, 5)], [], 412),
        ([(6, 5)], [], 201),  # Further than Python looks.
        ([(0, 5)], [(5, 6)], 201),
        ([(0, 5), (1, 5), (2, 5)], [(3, 4)], 412),
        ([(4, 5)], [(0, 6), (1, 6)], 201),
        ([(4, 7)], [(0, 6), (1, 6)], 412),
        ([(4, 7), (0, 3)], [(1, 6)], 412),
        ([], [(0, 6), (1, 6), (2, 6), (3, 6)], 201),
    ],
)
async def test_an_object_on_some_devices(
    spread: FrontedProxy, objects: list[tuple[int, int]], deletions: list[tuple[int, int]], status: int
) -> None:
    for name, answers in (("warm", by_front), ("cold", put)):
        place(spread, name, objects, deletions)
        answer = await (answers(spread, name) if name == "warm" else put(spread, name, COLD))
        assert answer.status == status, name
        assert (await spread.proxy.call("GET", f"c/{name}", {"X-Newest": "true"})).body == (
            b"new" if status == 201 else b"old"
        )


@pytest.mark.parametrize("at", [0, 4])
async def test_a_device_that_is_gone(spread: FrontedProxy, at: int) -> None:
    """The others are Python's to weigh, whether it is a primary or not."""
    cluster = spread.proxy.cluster
    for name, objects, status in (("there", [(3, 5)], 412), ("new", [], 201)):
        place(spread, name, objects, [])
        gone = (*cluster.primaries(path_of(name)), *cluster.handoffs(path_of(name)))[at]
        spread.devices.stop(gone, cluster)
        with cluster.down(gone):
            assert (await by_python(spread, name)).status == status
    with cluster.down(*cluster.primaries(path_of("unknown"))[:2]):
        for device in cluster.primaries(path_of("unknown"))[:2]:
            spread.devices.stop(device, cluster)
        assert (await by_python(spread, "unknown")).status == 503


async def test_a_device_that_is_not_spoken_to(spread: FrontedProxy) -> None:
    """It may have the object."""
    place(spread, "o", [(5, 5)], [])
    cluster = spread.proxy.cluster
    away = (*cluster.primaries(path_of("o")), *cluster.handoffs(path_of("o")))[5]
    spread.devices.away.add(away.address)
    assert (await by_python(spread, "o")).status == 412


HERE = Place("east", "z0")


@pytest.mark.parametrize("quorum", ["local", "each-region", "majority"])
@pytest.mark.parametrize(
    ("regions", "devices", "replicas"),
    [
        (("r",), 8, 3),
        (("r",), 4, 2),
        (("east", "west"), 9, 3),
        (("east", "north", "west"), 12, 3),
        (("west", "east"), 7, 4),
        (("west", "north", "east"), 8, 2),
    ],
)
async def test_the_front_asks_the_same_devices_as_python(
    tmp_path: Directory, regions: tuple[str, ...], devices: int, replicas: int, quorum: WriteQuorum
) -> None:
    here = HERE if "east" in regions else ANYWHERE
    async with (
        memory_cluster(
            tmp_path, devices=devices, replicas=replicas, regions=regions, place=here, quorum=quorum
        ) as cluster,
        fronted_proxy(cluster, tmp_path) as fronted,
    ):
        await cluster.make_container()

        def reads() -> dict[str, int]:
            return {device.name: fronted.devices.reads(device, cluster) for device in cluster.devices}

        for number in range(10):
            name, before = f"o{number}", reads()
            assert (await by_front(fronted, name)).status == 201
            asked = {device for device, count in reads().items() if count > before[device]}
            assert asked == {device.name for device in holders(cluster, name)}, name


def holders(cluster: MemoryCluster, name: str) -> list[Device]:
    """The devices that Python asks for the newest version."""
    return list(cluster.objects._copies._holders(cluster.ring, cluster.key(path_of(name))))
