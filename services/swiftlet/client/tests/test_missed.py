"""What metadata servers are told of writes that devices have missed, without any connection."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from swiftlet.client.direct import missed
from swiftlet.client.direct.missed import MAX_NAMED, MAX_PLACES, Place, Reports
from swiftlet.client.direct.owed import BEHIND_S
from swiftlet.client.errors import ConnectionFailed, status_error
from swiftlet.client.tests.test_direct import Clock


class Server:
    """Notes what it is told, or fails; a pause of the reports moves the clock, and ends when the test lets it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.told: list[Mapping[str, Any]] = []
        self.failures: list[Exception] = []
        self.pauses: list[float] = []

    async def tell(self, fields: Mapping[str, object]) -> None:
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        self.told.append(fields)

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.now += seconds
        await asyncio.sleep(0)

    def reports(self) -> Reports:
        return Reports(self.tell, self.clock, self.pause)


def place(partition: int, device: int = 0, container: str = "c", policy: int = 0) -> Place:
    return Place("AUTH_test", container, policy, device, partition)


async def test_each_partition_is_told_once_by_the_name_of_one_object() -> None:
    server = Server()
    reports = server.reports()
    reports.note(place(7), "a")
    reports.note(place(7), "b")
    reports.note(place(7, device=1), "c")
    reports.note(place(9), "d")
    reports.note(place(7, container="other"), "e")
    await reports.close()
    common = {"account": "AUTH_test", "policy": 0}
    of_c = [{"device": 0, "objects": ["a", "d"]}, {"device": 1, "objects": ["c"]}]
    assert server.told == [
        {**common, "container": "c", "missed": of_c},
        {**common, "container": "other", "missed": [{"device": 0, "objects": ["e"]}]},
    ]


async def test_requests_are_of_a_bounded_size() -> None:
    server = Server()
    reports = server.reports()
    for partition in range(2 * MAX_NAMED + 1):
        reports.note(place(partition), f"o{partition}")
    await reports.close()
    assert [len(one["missed"][0]["objects"]) for one in server.told] == [MAX_NAMED, MAX_NAMED, 1]


async def test_of_too_many_partitions_the_oldest_are_dropped() -> None:
    server = Server()
    reports = server.reports()
    for partition in range(MAX_PLACES + 1):
        reports.note(place(partition), f"o{partition}")
    await reports.close()
    names = [name for one in server.told for name in one["missed"][0]["objects"]]
    assert (len(names), names[0]) == (MAX_PLACES, "o1")


@pytest.mark.parametrize(
    "failure", [ConnectionFailed("gone"), status_error(503, "no", "POST"), status_error(429, "too many", "POST")]
)
async def test_metadata_servers_that_are_away_are_told_later(failure: Exception) -> None:
    server = Server()
    server.failures = [failure] * 7
    reports = server.reports()
    reports.note(place(7), "a")
    async with asyncio.timeout(60):
        while not server.told:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert server.pauses == [0.5, 1.0, 2.0, 5.0, 10.0, 10.0, 10.0]
    reports.note(place(7), "a")
    await reports.close()
    assert len(server.told) == 2, "it is told anew of what is missed later"


@pytest.mark.parametrize("status", [403, 404, 409])
async def test_what_a_server_refuses_is_not_said_again(status: int) -> None:
    server = Server()
    server.failures = [status_error(status, "no", "POST")]
    reports = server.reports()
    reports.note(place(7), "a")
    await reports.close()
    assert (server.told, server.pauses) == ([], [])


async def test_what_is_older_than_a_client_remembers_is_dropped() -> None:
    server = Server()
    server.failures = [ConnectionFailed("gone")] * 1000
    reports = server.reports()
    reports.note(place(7), "a")
    async with asyncio.timeout(60):
        while reports._names:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert sum(server.pauses) == pytest.approx(BEHIND_S, abs=10.1)


async def test_closing_does_not_wait_for_metadata_servers_that_are_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missed, "CLOSING_S", 3600.0)
    server = Server()
    reports = Reports(server.tell, server.clock)
    await reports.close()
    server.failures = [ConnectionFailed("gone")]
    reports.note(place(7), "a")
    while server.failures:  # noqa: ASYNC110 - looking is cheap
        await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await reports.close()
    assert server.told == []
