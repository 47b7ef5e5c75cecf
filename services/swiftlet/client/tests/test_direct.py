"""What the direct way decides without any connection: which requests go, when grants and rings are renewed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from swiftlet.client.direct import plain
from swiftlet.client.direct.errors import GoByHttp
from swiftlet.client.direct.grants import MAX_GRANTS, REFUSED_S, Granted, Grants, Kind
from swiftlet.client.direct.outage import FIRST_S, LONGEST_S, Outage
from swiftlet.client.direct.owed import BEHIND_S, MAX_BEHIND, Behind
from swiftlet.client.direct.rings import PAUSE_S, DirectRings
from swiftlet.client.errors import ConfigurationError, ConnectionFailed, NotFound, status_error
from swiftlet.client.options import Options
from swiftlet.client.surroundings import find_options
from swiftlet.client.values import ObjectRequest, Span
from swiftlet.errors import Unavailable
from swiftlet.ring import RingBuilder, codec
from swiftlet.ring.model import Device


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Server:
    """Gives grants of a minute, each with another number as its rights; or fails."""

    def __init__(self, clock: Clock, room: int | None = None) -> None:
        self.clock = clock
        self.room = room
        self.asked: list[Mapping[str, object]] = []
        self.failure: Exception | None = None
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, fields: Mapping[str, object]) -> Granted[int]:
        self.asked.append(fields)
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        return Granted(len(self.asked), self.clock.now + 60, self.clock.now + 30, self.room, None)


async def test_a_grant_is_asked_for_once_and_renewed_beside_requests() -> None:
    clock = Clock()
    server = Server(clock)
    grants = Grants(server, clock)
    both = await asyncio.gather(grants.of("c", Kind.READ), grants.of("c", Kind.READ))
    assert [granted.rights for granted in both] == [1, 1]
    assert server.asked == [{"container": "c", "operations": ["get", "head"]}]
    assert (await grants.of("c", Kind.WRITE)).rights == 2
    clock.now += 31
    server.open.clear()
    assert (await grants.of("c", Kind.READ)).rights == 1, "nobody waits for the new one"
    server.open.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (await grants.of("c", Kind.READ)).rights == 3
    clock.now += 60
    assert (await grants.of("c", Kind.READ)).rights == 4
    assert sorted(grants.in_use()) == [4]


async def test_a_metadata_server_that_is_gone_does_not_end_grants() -> None:
    clock = Clock()
    server = Server(clock)
    grants = Grants(server, clock)
    await grants.of("c", Kind.READ)
    server.failure = ConnectionFailed("gone")
    clock.now += 40
    for _ in range(3):
        assert (await grants.of("c", Kind.READ)).rights == 1
        await asyncio.sleep(0)
    clock.now += 20
    with pytest.raises(ConnectionFailed):
        await grants.of("c", Kind.READ)
    await grants.close()


async def test_what_is_refused_is_not_asked_for_again_at_once() -> None:
    clock = Clock()
    server = Server(clock)
    server.failure = status_error(403, "no", "POST")
    grants = Grants(server, clock)
    for _ in range(3):
        with pytest.raises(GoByHttp, match="no grant for c"):
            await grants.of("c", Kind.WRITE)
    assert len(server.asked) == 1
    server.failure = None
    clock.now += REFUSED_S
    assert (await grants.of("c", Kind.WRITE)).rights == 2
    grants.refused("c", Kind.WRITE, "rights change")
    with pytest.raises(GoByHttp, match="rights change"):
        await grants.of("c", Kind.WRITE)


async def test_room_of_a_quota_is_counted_and_asked_for_again() -> None:
    clock = Clock()
    server = Server(clock, room=2)
    grants = Grants(server, clock)
    rights = [(await grants.of("c", Kind.WRITE, 5)).rights for _ in range(3)]
    assert rights == [1, 1, 2]
    server.room = 0
    assert (await grants.of("c", Kind.WRITE, 5)).rights == 2
    with pytest.raises(GoByHttp, match="too little room"):
        await grants.of("c", Kind.WRITE, 5)
    assert not Granted(1, 0.0, 0.0, None, 4).take(5)


async def test_who_is_cancelled_does_not_take_the_question_from_others() -> None:
    clock = Clock()
    server = Server(clock)
    server.open.clear()
    grants = Grants(server, clock)
    first, second = (asyncio.ensure_future(grants.of("c", Kind.READ)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    server.open.set()
    assert (await second).rights == 1


async def test_grants_that_are_kept_are_bounded() -> None:
    clock = Clock()
    grants = Grants(Server(clock), clock)
    for number in range(MAX_GRANTS + 5):
        await grants.of(f"c{number}", Kind.READ)
    assert len(grants.in_use()) == MAX_GRANTS


def ring_of(version: int) -> bytes:
    builder = RingBuilder(2, 1, min_part_hours=0)
    for number in range(version):
        builder.add_device(
            name=f"d{number}", host="127.0.0.1", port=1, device=f"d{number}", region="r", zone="z", weight=1
        )
        builder.rebalance(500_000)
    return codec.encode(builder.ring)


async def none_of(account: str, container: str) -> tuple[bytes, str, int]:
    raise AssertionError("nobody expects a ring")


async def test_a_ring_is_fetched_again_when_a_device_has_a_newer_one() -> None:
    clock = Clock()
    there = [1]
    asked: list[str | None] = []

    async def fetch(policy: int, etag: str | None) -> tuple[bytes, str] | None:
        asked.append(etag)
        return None if etag == str(there[0]) else (ring_of(there[0]), str(there[0]))

    rings = DirectRings(fetch, none_of, clock)
    with pytest.raises(Unavailable):
        rings.objects(0)
    first = await rings.have(0)
    there[0] = 2
    rings.told(0, first.version)
    rings.told(0, 0)
    assert not await rings.newer(0, first.version)
    rings.told(0, first.version + 1)
    assert not await rings.newer(0, first.version), "it has been fetched a moment ago"
    clock.now += PAUSE_S
    rings.told(0, first.version + 1)
    rings.told(0, first.version + 1)
    assert rings.objects(0) is first, "requests go on with it"
    assert await rings.newer(0, first.version)
    clock.now += PAUSE_S
    rings.told(0, first.version + 5)
    assert not await rings.newer(0, rings.objects(0).version), "the metadata server has none yet"
    assert asked == [None, "1", "2"]
    await rings.close()


async def test_the_ring_of_the_first_container_is_fetched_ahead_and_once() -> None:
    asked = list[object]()
    may_answer = asyncio.Event()

    async def fetch(policy: int, _etag: str | None) -> tuple[bytes, str]:
        asked.append(policy)
        return ring_of(1), "1"

    async def fetch_of(account: str, container: str) -> tuple[bytes, str, int]:
        asked.append((account, container))
        await may_answer.wait()
        return ring_of(2), "2", 3

    rings = DirectRings(fetch, fetch_of)
    rings.expect("a", "c")
    rings.expect("a", "d")
    first = asyncio.ensure_future(rings.have(3))
    other = asyncio.ensure_future(rings.have(0))
    await asyncio.sleep(0)
    may_answer.set()
    assert (await first).version == 2, "who needs it waits for the one that is on its way"
    assert (await other).version == 1
    rings.expect("a", "e")
    assert asked == [("a", "c"), 0]
    await rings.close()


async def test_where_the_ring_of_a_container_is_not_told_that_of_its_policy_is_asked_for() -> None:
    async def fetch(policy: int, _etag: str | None) -> tuple[bytes, str]:
        if policy != 3:
            raise status_error(404, "Not Found", f"GET v1/rings/{policy}")
        return ring_of(1), "1"

    async def fetch_of(account: str, container: str) -> tuple[bytes, str, int]:
        raise status_error(404, "Not Found", "GET v1/rings")

    rings = DirectRings(fetch, fetch_of)
    rings.expect("a", "c")
    assert (await rings.have(3)).version == 1
    with pytest.raises(NotFound):
        await rings.have(0)
    await rings.close()


async def test_a_ring_that_is_damaged_is_an_error_of_the_server() -> None:
    async def fetch(policy: int, etag: str | None) -> tuple[bytes, str] | None:
        return b"no ring", ""

    with pytest.raises(ConnectionFailed, match="can't be used"):
        await DirectRings(fetch, none_of).have(0)


def test_pauses_grow_while_something_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    outage = Outage("the devices", clock)
    pauses = []
    for _ in range(8):
        outage.failed("no route")
        began = clock.now
        while outage.lasts:
            clock.now += FIRST_S / 2
        pauses.append(clock.now - began)
    assert (pauses[0], pauses[1], pauses[-1]) == (FIRST_S, 2 * FIRST_S, LONGEST_S)
    assert [record.getMessage() for record in caplog.records] == [
        "the devices can't be used directly, objects go over HTTP until that works: no route"
    ]
    outage.worked()
    assert not outage.lasts


def test_devices_that_missed_writes_are_remembered_for_a_while() -> None:
    clock = Clock()
    behind = Behind(clock)
    device = Device(3, "d", "h", 1, "d", "r", "z", "n", 1.0)
    behind.note(device, 0, 7)
    assert [set(behind.behind(*place)) for place in ((0, 7), (0, 8), (1, 7))] == [{3}, set(), set()]
    clock.now += BEHIND_S
    assert not behind.behind(0, 7)
    for partition in range(MAX_BEHIND + 1):
        behind.note(device, 0, partition)
    assert [set(behind.behind(0, partition)) for partition in (0, MAX_BEHIND)] == [set(), {3}]


@pytest.mark.parametrize(
    ("headers", "goes"),
    [
        ({}, True),
        ({"content-type": "text/plain", "x-object-meta-a": "b", "Cache-Control": "no-store"}, True),
        ({"X-Object-Meta-A": ""}, True),
        ({"X-Object-Meta-A": " b"}, False),
        ({"X-Object-Meta-A": "b\n"}, False),
        ({"X-Object-Meta-A": "\u00e4"}, False),
        ({"Content-Type": "text/plain; swift_bytes=3"}, False),
        ({"X-Object-Manifest": "a/b"}, False),
        ({"If-None-Match": "*"}, False),
        ({"X-Delete-At": "1"}, False),
        ({"X-Anything-New": "1"}, False),
    ],
)
def test_only_plain_objects_are_stored_directly(headers: dict[str, str], goes: bool) -> None:
    assert (plain.new_object(ObjectRequest("c", "o", headers)) is not None) is goes


def test_headers_are_stored_as_a_proxy_stores_them() -> None:
    new = plain.new_object(ObjectRequest("c", "o.html", {"x-object-meta-some_name": "v", "EXPIRES": "0"}))
    assert new == plain.NewObject("text/html", {"X-Object-Meta-Some-Name": "v", "Expires": "0"})


@pytest.mark.parametrize("name", ["", "a" * 1025, "a\0b", "\ud800"])
def test_names_that_no_object_has_are_left_to_a_proxy(name: str) -> None:
    assert not plain.is_read(ObjectRequest("c", name))
    assert plain.new_object(ObjectRequest("c", name)) is None


def test_reads_that_mean_more_than_bytes_are_left_to_a_proxy() -> None:
    assert plain.is_read(ObjectRequest("c", "o", {"if-match": "e"}), Span(3, 5))
    assert not plain.is_read(ObjectRequest("c", "o"), Span(-3))
    assert not plain.is_read(ObjectRequest("c", "o", {"X-Newest": "true"}))
    assert not plain.is_read(ObjectRequest("c", "o", query={"version-id": "1"}))
    assert not plain.is_deletion(ObjectRequest("c", "o", {"If-Match": "e"}))
    assert not plain.is_read(ObjectRequest("c/d", "o"))


@pytest.mark.parametrize("url", ["metadata:8080", "ftp://h", "http://", "http://h/v1", "http://h?a", "http://h:x", ""])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"option metadata_url is .*http://HOST:PORT"):
        Options(metadata_url=url)


def test_the_environment_names_metadata_servers() -> None:
    there = {"SWIFTLET_METADATA_URL": "http://h:1"}
    assert find_options(there, concurrency=3) == Options(metadata_url="http://h:1", concurrency=3)
    assert find_options(there, metadata_url=None).metadata_url is None
    assert find_options({"SWIFTLET_METADATA_URL": ""}).metadata_url is None


def test_the_mounted_secret_names_metadata_servers_where_they_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "metadataUrl").write_text("http://h:2\n")
    assert find_options({}, str(tmp_path)).metadata_url == "http://h:2"
    assert find_options({"SWIFTLET_CREDENTIALS": str(tmp_path)}).metadata_url == "http://h:2"
    assert find_options({"SWIFTLET_METADATA_URL": "http://h:1"}, str(tmp_path)).metadata_url == "http://h:1"
    assert find_options({}, str(tmp_path / "none")).metadata_url is None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert find_options({}, str(tmp_path)).metadata_url is None
