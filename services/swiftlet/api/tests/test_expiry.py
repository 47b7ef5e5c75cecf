"""Objects that go by themselves: headers, what is seen after their time, and what is queued."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest

from swiftlet.api.tests.proxy import SMALL, Proxy
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
        ("X-Delete-At", "1" * 30, b"Non-integer X-Delete-At"),
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
    assert await queued(proxy.cluster) == [(1200, "c/o"), (1300, "c/o")], "what is moot is found out when it is due"
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
        ({"X-Delete-At": ""}, None),
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
    assert times == {"v": 1100, "old": 1100}
