"""Limits of metadata hold for what there is after a request, not for each request by itself."""

from __future__ import annotations

import asyncio

import pytest

from swiftlet.api.tests.proxy import Proxy

COUNT, SIZE = 90, 4096
PLACES = pytest.mark.parametrize(("kind", "path"), [("Account", ""), ("Container", "c")])


async def items(proxy: Proxy, kind: str, path: str) -> dict[str, str]:
    headers = (await proxy.call("HEAD", path)).headers
    return {name: value for name, value in headers.items() if name.startswith(f"X-{kind}-Meta-")}


@PLACES
async def test_many_requests_add_up_to_no_more_than_one_may_bring(proxy: Proxy, kind: str, path: str) -> None:
    for number in range(9):
        headers = {f"X-{kind}-Meta-N{number}-{item}": "x" for item in range(10)}
        assert (await proxy.call("POST", path, headers)).status == 204
    assert len(await items(proxy, kind, path)) == COUNT
    for method in ("POST", "PUT") if kind == "Container" else ("POST",):
        answer = await proxy.call(method, path, {f"X-{kind}-Meta-More": "x"})
        assert (answer.status, answer.body) == (400, b"Too many metadata items; max 90")
    assert len(await items(proxy, kind, path)) == COUNT
    swap = {f"X-Remove-{kind}-Meta-N0-0": "x", f"X-{kind}-Meta-More": "x", f"X-{kind}-Meta-N1-1": "changed"}
    assert (await proxy.call("POST", path, swap)).status == 204
    after = await items(proxy, kind, path)
    assert (len(after), after[f"X-{kind}-Meta-N1-1"]) == (COUNT, "changed")


@PLACES
async def test_many_requests_bring_no_more_bytes_than_one_may(proxy: Proxy, kind: str, path: str) -> None:
    statuses = [
        (await proxy.call("POST", path, {f"X-{kind}-Meta-N{number:02}": "v" * 256})).status for number in range(40)
    ]
    assert statuses == [204] * 15 + [400] * 25
    answer = await proxy.call(
        "POST", path, {f"X-{kind}-Meta-N00": "", f"X-{kind}-Meta-N01": "", f"X-{kind}-Meta-B": "v"}
    )
    assert answer.status == 204
    assert (
        sum(len(name) - len(f"X-{kind}-Meta-") + len(value) for name, value in (await items(proxy, kind, path)).items())
        < SIZE
    )


@PLACES
async def test_requests_at_the_same_time_add_up_too(proxy: Proxy, kind: str, path: str) -> None:
    """The servers of the databases count, where requests come one after the other."""

    async def post(number: int) -> int:
        headers = {f"X-{kind}-Meta-N{number}-{item}": "x" for item in range(80)}
        return (await proxy.call("POST", path, headers)).status

    statuses = await asyncio.gather(*map(post, range(8)))
    assert set(statuses) <= {204, 400, 503}
    assert (await proxy.call("POST", path, {f"X-{kind}-Meta-M{number}": "x" for number in range(11)})).status == 400


async def test_a_full_container_takes_what_is_no_item_of_its_own(proxy: Proxy) -> None:
    headers = {f"X-Container-Meta-N{number}": "x" for number in range(COUNT)}
    assert (await proxy.call("POST", "c", headers)).status == 204
    assert (await proxy.call("POST", "c", {"X-Container-Read": ".r:*"})).status == 204
    assert (await proxy.call("PUT", "c", {"X-Versions-Enabled": "true"})).status == 202
    assert (await proxy.call("HEAD", "c")).headers["X-Container-Read"] == ".r:*"
