"""Reports: what damage and age make of them, and asking a real server that answers, hangs, lies or says too much."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swiftlet.ring import Ring, RingBuilder, codec
from swiftlet_operator.manifests import Manifest
from swiftlet_operator.reports import PoliciesReport, PolicyUse, Report, RingReport, parse_report
from swiftlet_operator.statusz import MAX_BYTES, HttpReporter, questions, reporter

FULL = {
    "service": "replicator",
    "version": "0.1",
    "startedAt": 1_800_000_000.5,
    "keys": ["0badcafe", "deadbeef"],
    "rings": {"object-0": 7, "container": 3},
    "transports": {"http": 4},
    "rdma": {"mode": "auto", "ready": False, "missing": "no device"},
    "somethingNew": {"x": [1]},
    "devices": {
        "store-disks-0/d0": {
            "rings": {
                "object-0": {
                    "held": 12,
                    "misplaced": 0,
                    "behind": 1,
                    "unchecked": 2,
                    "syncedAt": None,
                    "ringVersion": 7,
                    "somethingNew": 1,
                }
            }
        }
    },
}


def test_all_fields_are_read_and_others_left_alone() -> None:
    report = parse_report("replicator", json.dumps(FULL).encode())

    assert report is not None
    assert report.keys == ("0badcafe", "deadbeef")
    assert report.rings == {"object-0": 7, "container": 3}
    assert report.transports == {"http": 4}
    assert report.rdma_missing == "no device"
    ring = report.devices["store-disks-0/d0"].rings["object-0"]
    assert ring == RingReport(held=12, misplaced=0, behind=1, unchecked=2, synced_at_s=None, ring_version=7)


USE = {"containers": 2, "objects": 9, "accounts": 1, "largest": ["AUTH_a"], "copies": 6, "emptySince": None}


def test_what_uses_deprecated_policies() -> None:
    fields = {"service": "container", "policies": {"countedAt": 5.5, "used": {"1": USE}}}
    report = parse_report("container", json.dumps(fields).encode())
    assert report is not None
    assert report.policies == PoliciesReport(5.5, {1: PolicyUse(2, 9, 1, ("AUTH_a",), 6, None)})


@pytest.mark.parametrize(
    "used",
    [
        {"1": {**USE, "copies": None}},
        {"1": {**USE, "containers": -1}},
        {"1": {name: value for name, value in USE.items() if name != "objects"}},
        {"9" * 5000: USE},
        {"\N{ARABIC-INDIC DIGIT THREE}": USE},
        {"one": USE},
        {"1": 7},
        7,
    ],
)
def test_a_damaged_count_of_a_policy_is_none(used: object) -> None:
    """Were it taken for nothing, a policy would go that is in use."""
    fields = {"service": "container", "policies": {"countedAt": 5.5, "used": used}}
    report = parse_report("container", json.dumps(fields).encode())
    assert report is not None
    assert report.policies == PoliciesReport(5.5, {})


def test_since_when_a_device_is_empty_and_which_users_workers_know() -> None:
    rings = {"object-1": {"held": 0, "emptySince": 7.5, "syncedAt": 9.0, "ringVersion": 2}}
    report = parse_report(
        "replicator", json.dumps({"service": "replicator", "devices": {"p/d0": {"rings": rings}}}).encode()
    )
    assert report is not None
    assert report.devices["p/d0"].rings["object-1"].empty_since_s == 7.5
    report = parse_report("proxy", json.dumps({"service": "proxy", "usersOfWorkers": ["0badcafe", None, 7]}).encode())
    assert report is not None
    assert report.workers == {"0badcafe", None}


def test_a_space_report() -> None:
    device = {"capacityBytes": 100, "freeBytes": 10, "state": "failed", "reason": "I/O error", "pending": 3}
    report = parse_report("object", json.dumps({"service": "object", "devices": {"d0": device}}).encode())

    assert report is not None
    made = report.devices["d0"]
    assert (made.capacity_bytes, made.free_bytes, made.state, made.reason, made.pending) == (
        *(100, 10),
        *("failed", "I/O error", 3),
    )


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b'{"service": "proxy"}', b"[" * 100_000, b"\xff\xfe"])
def test_what_is_no_report_is_none(body: bytes) -> None:
    assert parse_report("object", body) is None


_BEYOND_FLOATS = 10**400
_LEAF = st.none() | st.booleans() | st.integers() | st.just(_BEYOND_FLOATS) | st.floats() | st.text(max_size=5)
_RING = st.dictionaries(st.sampled_from(["held", "behind", "syncedAt", "ringVersion"]), _LEAF, max_size=4)
_RINGS = _LEAF | st.dictionaries(st.just("object-0"), _LEAF | _RING, max_size=1)
_DEVICE = _LEAF | st.fixed_dictionaries({"rings": _RINGS, "capacityBytes": _LEAF, "state": _LEAF})
_FIELD = _LEAF | st.lists(_LEAF, max_size=2) | st.dictionaries(st.sampled_from(["object-0", "d0"]), _DEVICE, max_size=2)


# No deadline: on a busy machine any example may take long.
@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([*FULL, "users"]), _FIELD, max_size=4))
@example({"startedAt": _BEYOND_FLOATS, "rings": {"object-0": _BEYOND_FLOATS}})
@example({"devices": {"d0": {"rings": {"object-0": {"syncedAt": -_BEYOND_FLOATS, "held": _BEYOND_FLOATS}}}}})
def test_any_damage_is_a_report_that_knows_less(fields: dict[str, object]) -> None:
    report = parse_report("object", json.dumps({**fields, "service": "object"}).encode())

    assert report is not None
    assert all(isinstance(count, int) and count >= 0 for count in report.rings.values())


def pod(name: str, port: int, service: str = "object", **status: object) -> Manifest:
    """A pod with one service that can be asked."""
    container: Manifest = {"name": service, "ports": [{"containerPort": port}]}
    return {
        "metadata": {"name": name},
        "spec": {"containers": [container, {"name": "redis", "ports": [{"containerPort": 1}]}]},
        "status": {"podIP": "127.0.0.1", **status},
    }


def test_where_a_pod_is_asked() -> None:
    plain = pod("a", 6200)
    assert [one.url for one in questions(plain)] == ["http://127.0.0.1:6200/statusz"]
    plain["spec"]["containers"][0]["readinessProbe"] = {"httpGet": {"scheme": "HTTPS"}}
    plain["status"]["podIP"] = "fd00::1"
    assert [one.url for one in questions(plain)] == ["https://[fd00::1]:6200/statusz"]
    plain["spec"]["containers"][0]["ports"].append({"name": "management", "containerPort": 8081})
    assert [one.url for one in questions(plain)] == ["http://[fd00::1]:8081/statusz"]
    assert questions(pod("a", 6200, podIP=None)) == []
    assert questions(pod("a", 6200, phase="Failed")) == []


class Pods:
    """A real server that is many pods: its answer depends on the port's path map."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.ports: dict[str, int] = {}
        self._runners: list[web.AppRunner] = []

    async def begin(self) -> None:
        """One port for each way to answer."""
        for name in ("good", "hangs", "fails", "too-much", "nonsense", "breaks-off", "moved"):
            app = web.Application()
            app.router.add_get("/statusz", getattr(self, name.replace("-", "_")))
            app.router.add_get("/rings/object-0", getattr(self, name.replace("-", "_")))
            runner = web.AppRunner(app)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.ports[name] = runner.addresses[0][1]
            self._runners.append(runner)

    async def end(self) -> None:
        """Away with it."""
        self.release.set()
        for runner in self._runners:
            await runner.cleanup()

    async def good(self, request: web.Request) -> web.Response:
        if request.path.startswith("/rings/"):
            return web.Response(body=codec.encode(RING))
        return web.json_response({"service": "object", "rings": {"object-0": 3}})

    async def hangs(self, request: web.Request) -> web.Response:
        await self.release.wait()
        return web.Response()

    async def fails(self, request: web.Request) -> web.Response:
        return web.json_response({"service": "object"}, status=500)

    async def too_much(self, request: web.Request) -> web.Response:
        return web.json_response({"service": "object", "padding": "x" * MAX_BYTES})

    async def nonsense(self, request: web.Request) -> web.Response:
        return web.Response(body=b"<html>")

    async def breaks_off(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"service": "object"}')
        assert request.transport is not None
        request.transport.abort()
        return response

    async def moved(self, request: web.Request) -> web.Response:
        raise web.HTTPFound(f"http://127.0.0.1:{self.ports['good']}/statusz")


def _ring() -> Ring:
    builder = RingBuilder(4, 2, min_part_hours=0)
    for number in range(3):
        builder.add_device(host="h", port=1, device=f"d{number}", region="r", zone=f"z{number}", weight=1)
    builder.rebalance(500_000)
    return builder.ring


RING = _ring()


@pytest.fixture
async def pods() -> AsyncIterator[Pods]:
    """Pods that answer in all ways."""
    made = Pods()
    await made.begin()
    try:
        yield made
    finally:
        await made.end()


async def test_pods_that_misbehave_have_no_report_and_harm_nobody(pods: Pods, unused_tcp_port: int) -> None:
    asked = [pod(name, port) for name, port in pods.ports.items()] + [pod("away", unused_tcp_port)]
    began = time.monotonic()
    async with aiohttp.ClientSession() as session:
        found = await HttpReporter(session, timeout_s=0.5).reports(asked)

    assert found == {"good": {"object": Report("object", rings={"object-0": 3})}}
    assert time.monotonic() - began < 5


async def test_a_ring_is_taken_from_the_first_pod_that_gives_a_sound_one(pods: Pods, unused_tcp_port: int) -> None:
    ways = ("hangs", "fails", "nonsense", "breaks-off", "good")
    asked = [pod("away", unused_tcp_port), *(pod(name, pods.ports[name]) for name in ways)]
    async with aiohttp.ClientSession() as session:
        asking = HttpReporter(session, ring_timeout_s=0.5)
        assert await asking.ring(asked, "object-0") == RING
        assert await asking.ring(asked[:-1], "object-0") is None


async def test_the_reporter_of_the_operator(pods: Pods) -> None:
    async with reporter() as asking:
        found = await asking.reports([pod(f"p-{index}", pods.ports["good"]) for index in range(100)])

    assert len(found) == 100
