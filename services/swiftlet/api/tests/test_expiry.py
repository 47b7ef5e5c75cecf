"""Objects that go by themselves: headers, what is seen after their time, and what is queued."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest

from swiftlet.api.tests.proxy import SMALL, Proxy
from swiftlet.api.writing.expiry_changes import has_expiring
from swiftlet.errors import NotFound
from swiftlet.expiry.tasks import ACCOUNT as QUEUE
from swiftlet.expiry.tasks import CONTAINERS
from swiftlet.expiry.tests.support import all_tasks
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster

BIG = b"x" * (SMALL * 5)


async def queued(cluster: MemoryCluster) -> list[tuple[int, str]]:
    """All that is queued: when, and the object below the account."""
    tasks = await all_tasks(cluster)
    assert {task.path.account for task in tasks} <= {ACCOUNT}
    return sorted((task.delete_at, f"{task.path.container}/{task.path.obj}") for task in tasks)


@pytest.mark.parametrize("body", [b"", b"small", BIG])
async def test_an_object_is_gone_from_its_time_on(proxy: Proxy, body: bytes) -> None:
    put = await proxy.call("PUT", "c/o", {"X-Delete-At": "1100"}, body)
    assert put.status == 201
    shown = await proxy.call("GET", "c/o")
    assert (shown.status, shown.headers["X-Delete-At"], shown.body) == (200, "0000001100", body)
    assert await queued(proxy.cluster) == [(1100, "c/o")]
    proxy.clock.now = 1099.9
    assert (await proxy.call("HEAD", "c/o")).status == 200
    proxy.clock.now = 1100.0
    for method in ("GET", "HEAD"):
        assert (await proxy.call(method, "c/o")).status == 404
    assert (await proxy.call("GET", "c/o", {"X-Newest": "true"})).status == 404
    assert (await proxy.call("GET", "c/o", {"Range": "bytes=0-1"})).status == 404
    assert (await proxy.call("POST", "c/o", {"X-Object-Meta-A": "b"})).status == 404
    copied = await proxy.call("COPY", "c/o", {"Destination": "c/copy"})
    assert copied.status == 404
    assert b"o\n" in (await proxy.call("GET", "c")).body, "listed until the expirer comes by"


async def test_delete_after_counts_before_delete_at(proxy: Proxy) -> None:
    headers = {"X-Delete-After": "50", "X-Delete-At": "5000"}
    assert (await proxy.call("PUT", "c/o", headers, b"")).status == 201
    assert (await proxy.call("HEAD", "c/o")).headers["X-Delete-At"] == "0000001050"


async def test_what_is_too_far_away_is_the_last_second_there_is(proxy: Proxy) -> None:
    assert (await proxy.call("PUT", "c/o", {"X-Delete-At": "99999999999"}, b"")).status == 201
    assert (await proxy.call("HEAD", "c/o")).headers["X-Delete-At"] == "9999999999"


@pytest.mark.parametrize(
    ("header", "value", "says"),
    [
        ("X-Delete-At", "soon", b"Non-integer X-Delete-At"),
        ("X-Delete-At", "1e5", b"Non-integer X-Delete-At"),
        ("X-Delete-At", "", b"Non-integer X-Delete-At"),
        ("X-Delete-After", "", b"Non-integer X-Delete-After"),
        ("X-Delete-At", "-" + "1" * 30, b"X-Delete-At in past"),
        ("X-Delete-At", "\u0663", b"Non-integer X-Delete-At"),
        ("X-Delete-At", "1000", b"X-Delete-At in past"),
        ("X-Delete-At", "-1", b"X-Delete-At in past"),
        ("X-Delete-After", "1.5", b"Non-integer X-Delete-After"),
        ("X-Delete-After", "0", b"X-Delete-After in past"),
        ("X-Delete-After", "-10", b"X-Delete-After in past"),
    ],
)
@pytest.mark.parametrize("method", ["PUT", "POST", "COPY"])
async def test_what_is_no_time_in_the_future_is_refused(
    proxy: Proxy, method: str, header: str, value: str, says: bytes
) -> None:
    await proxy.call("PUT", "c/o", {"X-Object-Meta-Kept": "yes"}, b"as it was")
    given = {header: value, "Destination": "c/copy"} if method == "COPY" else {header: value}
    answer = await proxy.call(method, "c/o", given, b"new" if method == "PUT" else None)
    assert answer.status == 400
    assert says in answer.body
    kept = await proxy.call("GET", "c/o")
    assert (kept.body, kept.headers["X-Object-Meta-Kept"]) == (b"as it was", "yes")
    assert (await proxy.call("HEAD", "c/copy")).status == 404
    assert await queued(proxy.cluster) == []


async def test_post_sets_changes_and_removes_it(proxy: Proxy) -> None:
    await proxy.call("PUT", "c/o", data=b"1")
    assert (await proxy.call("POST", "c/o", {"X-Delete-At": "1200"})).status == 202
    assert (await proxy.call("HEAD", "c/o")).headers["X-Delete-At"] == "0000001200"
    assert (await proxy.call("POST", "c/o", {"X-Delete-After": "300"})).status == 202
    assert (await proxy.call("HEAD", "c/o")).headers["X-Delete-At"] == "0000001300"
    assert await queued(proxy.cluster) == [(1300, "c/o")]
    proxy.clock.now = 1250.0
    assert (await proxy.call("GET", "c/o")).status == 200
    assert (await proxy.call("POST", "c/o", {"X-Remove-Delete-At": "x", "X-Delete-At": "1260"})).status == 202
    proxy.clock.now = 5000.0
    answer = await proxy.call("GET", "c/o")
    assert answer.status == 200
    assert "X-Delete-At" not in answer.headers


async def test_a_post_that_says_nothing_of_it_removes_it(proxy: Proxy) -> None:
    await proxy.call("PUT", "c/o", {"X-Delete-At": "1200"}, b"1")
    await proxy.call("POST", "c/o", {"X-Object-Meta-A": "b"})
    assert "X-Delete-At" not in (await proxy.call("HEAD", "c/o")).headers


async def test_a_put_begins_anew(proxy: Proxy) -> None:
    await proxy.call("PUT", "c/o", {"X-Delete-At": "1200"}, b"1")
    await proxy.call("PUT", "c/o", data=b"2")
    proxy.clock.now = 1300.0
    assert (await proxy.call("GET", "c/o")).body == b"2"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, "0000001200"),
        ({"X-Delete-At": "1300"}, "0000001300"),
        ({"X-Delete-After": "10"}, "0000001010"),
        ({"X-Remove-Delete-At": "true"}, None),
        ({"X-Fresh-Metadata": "true"}, None),
    ],
)
async def test_copies(proxy: Proxy, headers: dict[str, str], expected: str | None) -> None:
    await proxy.call("PUT", "c/o", {"X-Delete-At": "1200", "X-Object-Meta-A": "b"}, b"1")
    assert (await proxy.call("COPY", "c/o", {"Destination": "c/copy", **headers})).status == 201
    assert (await proxy.call("HEAD", "c/copy")).headers.get("X-Delete-At") == expected
    assert ("c/copy" in {name for _, name in await queued(proxy.cluster)}) == (expected is not None)


async def test_an_expired_object_does_not_stand_in_the_way_of_a_new_one(proxy: Proxy) -> None:
    await proxy.call("PUT", "c/o", {"X-Delete-At": "1100"}, b"1")
    assert (await proxy.call("PUT", "c/o", {"If-None-Match": "*"}, b"2")).status == 412
    proxy.clock.now = 1100.0
    assert (await proxy.call("PUT", "c/o", {"If-None-Match": "*"}, b"2")).status == 201
    assert (await proxy.call("GET", "c/o")).body == b"2"


async def test_a_manifest_goes_and_its_segments_stay(proxy: Proxy) -> None:
    await proxy.call("PUT", "c/seg", data=b"12345")
    manifest = b'[{"path": "c/seg"}]'
    made = await proxy.call("PUT", "c/slo", {"X-Delete-At": "1100"}, manifest, "multipart-manifest=put")
    assert made.status == 201
    assert (await proxy.call("GET", "c/slo")).body == b"12345"
    proxy.clock.now = 1100.0
    assert (await proxy.call("GET", "c/slo")).status == 404
    assert (await proxy.call("GET", "c/seg")).body == b"12345"
    assert await queued(proxy.cluster) == [(1100, "c/slo")]


async def test_a_large_object_whose_segment_has_expired_is_broken(proxy: Proxy) -> None:
    await proxy.call("PUT", "c/seg", {"X-Delete-At": "1100"}, b"12345")
    await proxy.call("PUT", "c/slo", {}, b'[{"path": "c/seg"}]', "multipart-manifest=put")
    proxy.clock.now = 1100.0
    assert (await proxy.call("GET", "c/slo")).status == 409


async def test_without_a_queue_nothing_is_stored(proxy: Proxy) -> None:
    with proxy.cluster.databases_down(*proxy.cluster.devices):
        answer = await proxy.call("PUT", "c/o", {"X-Delete-At": "1100"}, b"1")
    assert answer.status == 503
    assert "Retry-After" in answer.headers
    assert (await proxy.call("HEAD", "c/o")).status == 404


async def test_some_databases_may_be_away(proxy: Proxy) -> None:
    with proxy.cluster.databases_down(*proxy.cluster.devices[:2]):
        assert (await proxy.call("PUT", "c/o", {"X-Delete-At": "1100"}, b"1")).status == 201
    assert await queued(proxy.cluster) == [(1100, "c/o")]


async def test_an_upload_that_outlasts_its_time_is_queued_again(proxy: Proxy) -> None:
    """The expirer may have been by, found nothing and taken the task off."""

    async def slowly() -> AsyncIterator[bytes]:
        yield BIG
        async with asyncio.timeout(10):
            while not await queued(proxy.cluster):  # noqa: ASYNC110 - the other side tells nobody
                await asyncio.sleep(0.01)
        proxy.clock.now = 1100.0
        for task in await all_tasks(proxy.cluster):
            await proxy.api.expiry.remove(task.container, [task])
        assert await queued(proxy.cluster) == []
        yield b"end"

    assert (await proxy.call("PUT", "c/o", {"X-Delete-At": "1050"}, slowly())).status == 201
    assert (await proxy.call("GET", "c/o")).status == 404
    assert await queued(proxy.cluster) == [(1050, "c/o")]


async def test_names_of_all_kinds(proxy: Proxy) -> None:
    name = "\u00e9 \n%2F-/.." + "\U0001f600" * 200
    assert (await proxy.call("PUT", "c/" + quote(name), {"X-Delete-At": "1100"}, b"1")).status == 201
    assert await queued(proxy.cluster) == [(1100, "c/" + name)]


async def test_of_a_version_only_the_link_goes(proxy: Proxy) -> None:
    assert (await proxy.call("PUT", "v", {"X-Versions-Enabled": "true"})).status == 201
    await proxy.call("PUT", "v/o", data=b"first")
    await proxy.call("PUT", "v/o", {"X-Delete-At": "1100"}, b"second")
    assert (await proxy.call("GET", "v/o")).body == b"second"
    assert await queued(proxy.cluster) == [(1100, "v/o")]
    proxy.clock.now = 1100.0
    assert (await proxy.call("GET", "v/o")).status == 404
    versions = json.loads((await proxy.call("GET", "v", query="versions&format=json")).body)
    assert [row["name"] for row in versions] == ["o", "o"]
    newest = await proxy.call("GET", "v/o", query=f"version-id={versions[0]['version_id']}")
    assert (newest.status, newest.body) == (200, b"second")


async def test_a_post_to_a_version_is_about_its_link(proxy: Proxy) -> None:
    assert (await proxy.call("PUT", "v", {"X-Versions-Enabled": "true"})).status == 201
    await proxy.call("PUT", "v/o", data=b"1")
    assert (await proxy.call("POST", "v/o", {"X-Delete-At": "1100", "X-Object-Meta-A": "b"})).status == 202
    assert await queued(proxy.cluster) == [(1100, "v/o")]
    assert (await proxy.call("HEAD", "v/o")).headers["X-Object-Meta-A"] == "b"
    proxy.clock.now = 1100.0
    assert (await proxy.call("GET", "v/o")).status == 404
    assert (await proxy.call("POST", "v/o", {"X-Object-Meta-A": "c"})).status == 404


async def test_a_link_whose_target_has_expired(proxy: Proxy) -> None:
    await proxy.call("PUT", "c/target", {"X-Delete-At": "1100"}, b"1")
    assert (await proxy.call("PUT", "c/link", {"X-Symlink-Target": "c/target"}, b"")).status == 201
    assert (await proxy.call("GET", "c/link")).body == b"1"
    proxy.clock.now = 1100.0
    assert (await proxy.call("GET", "c/link")).status == 404


async def test_archives_of_overwritten_objects_keep_their_time(proxy: Proxy) -> None:
    await proxy.call("PUT", "old")
    await proxy.call("PUT", "v", {"X-Versions-Location": "old"})
    await proxy.call("PUT", "v/o", {"X-Delete-At": "1100"}, b"1")
    assert (await proxy.call("PUT", "v/o", data=b"2")).status == 201
    times = {name.partition("/")[0]: moment for moment, name in await queued(proxy.cluster)}
    assert times == {"old": 1100}


async def test_of_many_times_one_is_queued(proxy: Proxy) -> None:
    """Whatever sets another time, the one before is withdrawn; and no time makes databases of its own."""
    for number in range(20):
        headers = {"X-Delete-At": str(10**6 * (number + 1))}
        method = "POST" if number % 3 == 2 else "PUT"
        assert (await proxy.call(method, "c/o", headers, b"x" if method == "PUT" else None)).status in {201, 202}
    assert await queued(proxy.cluster) == [(20 * 10**6, "c/o")]
    [task] = await all_tasks(proxy.cluster)
    for container in set(CONTAINERS) - {task.container}:
        with pytest.raises(NotFound):
            await proxy.cluster.listings.container_info(QUEUE, container)


@pytest.mark.parametrize("body", [b"", b"small", BIG])
@pytest.mark.parametrize("way", ["PUT", "POST", "DELETE", "COPY", "bulk", "manifest"])
async def test_what_ends_a_time_withdraws_it(proxy: Proxy, way: str, body: bytes) -> None:
    assert (await proxy.call("PUT", "c/o", {"X-Delete-At": "1100"}, body)).status == 201
    assert (await proxy.call("PUT", "c/other", data=b"other")).status == 201
    if way == "PUT":
        assert (await proxy.call("PUT", "c/o", data=body)).status == 201
    elif way == "POST":
        assert (await proxy.call("POST", "c/o", {"X-Object-Meta-A": "b"})).status == 202
    elif way == "DELETE":
        assert (await proxy.call("DELETE", "c/o")).status == 204
    elif way == "COPY":
        assert (await proxy.call("COPY", "c/other", {"Destination": "c/o"})).status == 201
    elif way == "bulk":
        assert (await proxy.call("POST", "", {"Content-Type": "text/plain"}, b"c/o\n", "bulk-delete")).status == 200
    else:
        made = await proxy.call("PUT", "c/o", {}, b'[{"path": "c/other"}]', "multipart-manifest=put")
        assert made.status == 201
    assert await queued(proxy.cluster) == []


@pytest.mark.parametrize("size", [5, len(BIG)])
async def test_a_write_that_is_refused_leaves_nothing_queued(proxy: Proxy, size: int) -> None:
    wrong = {"X-Delete-At": "1100", "ETag": "0" * 32}
    assert (await proxy.call("PUT", "c/o", wrong, b"x" * size)).status == 422
    assert await queued(proxy.cluster) == []
    assert (await proxy.call("PUT", "c/o", {"X-Delete-At": "1100"}, b"kept")).status == 201
    assert (await proxy.call("PUT", "c/o", wrong, b"x" * size)).status == 422
    assert await queued(proxy.cluster) == [(1100, "c/o")], "that of the version that is still there"


async def test_writers_at_the_same_time_leave_the_task_of_the_one_that_stays(proxy: Proxy) -> None:
    async def put(number: int) -> None:
        assert (await proxy.call("PUT", "c/o", {"X-Delete-At": str(2000 + number % 3)}, b"x")).status == 201

    for _ in range(5):
        await asyncio.gather(*map(put, range(10)))
        stays = int((await proxy.call("HEAD", "c/o")).headers["X-Delete-At"])
        assert (stays, "c/o") in await queued(proxy.cluster)
    assert (await proxy.call("PUT", "c/o", {"X-Delete-At": "3000"}, b"x")).status == 201
    assert (3000, "c/o") in await queued(proxy.cluster)


async def test_a_container_that_had_such_objects_does_not_say_so(proxy: Proxy) -> None:
    assert (await proxy.call("PUT", "c/o", {"X-Delete-At": "1100"}, b"x")).status == 201
    for method in ("HEAD", "GET"):
        assert not any("sysmeta" in name.lower() for name in (await proxy.call(method, "c")).headers)
    await proxy.call("POST", "c", {"X-Container-Sysmeta-Expiring": "", "X-Remove-Container-Sysmeta-Expiring": "x"})
    assert has_expiring(await proxy.cluster.listings.container_info(ACCOUNT, "c"))


async def test_versions_and_archives_withdraw_what_they_replace(proxy: Proxy) -> None:
    assert (await proxy.call("PUT", "v", {"X-Versions-Enabled": "true"})).status == 201
    for number in range(3):
        assert (await proxy.call("PUT", "v/o", {"X-Delete-At": str(1100 + number)}, b"x")).status == 201
    assert await queued(proxy.cluster) == [(1102, "v/o")]
    assert (await proxy.call("DELETE", "v/o")).status == 204
    assert await queued(proxy.cluster) == []
