"""Object servers and their callers as the settings wire them: which port, what is reported."""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from swiftlet.boundaries.objects import ContainerUpdate, ObjectTransport, Verdict
from swiftlet.errors import SettingsError
from swiftlet.main.local_devices import ring_host
from swiftlet.main.nodes import use_object_transport
from swiftlet.main.services import object
from swiftlet.model import ObjectKey
from swiftlet.placement.tests.cluster import HOUR, footer_of
from swiftlet.ring import RingBuilder
from swiftlet.ring.codec import save
from swiftlet.ring.model import Device
from swiftlet.settings import ClusterSection, ObjectSection, ObjectSettings
from swiftlet.settings.sections import NodeTimeouts
from swiftlet.sync.session.messages import Compare, Equal, decode_reply, encode
from swiftlet.sync.session.roots import EMPTY_ROOT
from swiftlet.testing.ports import free_ports
from swiftlet.testing.storage.object_conformance import record
from swiftlet.web.app import create_base_app
from swiftlet.web.statusz import STATUS

KEYS = ["the key of the tests, which is long enough for it", "another key of the tests, long enough, too"]
BODY = b"data"


class Place:
    """One object server with one device."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # The native port is above that for HTTP.
        self.http, self.native = sorted(free_ports(2))
        self.device = Device(0, "one", "127.0.0.1", self.http, "d0", "r", "z", "n", 1.0)
        self.key_file = root / "key"
        self.key_file.write_text(KEYS[0])
        builder = RingBuilder(4, 1, min_part_hours=0)
        builder.add_device(name="one", host="127.0.0.1", port=1, device="d0", region="r", zone="z", weight=1)
        builder.rebalance(HOUR)
        (root / "rings").mkdir()
        save(builder.ring, root / "rings" / "container.ring")
        (root / "devices" / "d0").mkdir(parents=True)

    def cluster(self, **more: Any) -> dict[str, Any]:
        return {
            "key_file": str(self.key_file),
            "key_check_interval_s": 0.02,
            "hash_path_suffix": "suffix of the tests",
            "rings": str(self.root / "rings"),
            "native_port_offset": self.native - self.http,
            "native_pool_bytes": 16 << 20,
            **more,
        }

    @asynccontextmanager
    async def served(self, **more: Any) -> AsyncIterator[web.Application]:
        section = {"host": "127.0.0.1", "port": self.http, "devices_dir": self.root / "devices", "devices": ["d0"]}
        settings = ObjectSettings.model_validate(
            {"cluster": self.cluster(**more), "object": {**section, "row_wait_s": 0.1}}
        )
        app = object.create_app(settings)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.http).start()
        try:
            yield app
        finally:
            await runner.cleanup()

    @asynccontextmanager
    async def calling(self, **more: Any) -> AsyncIterator[tuple[ObjectTransport, web.Application]]:
        app = create_base_app("proxy", trust_request_ids=False)
        cluster = ClusterSection.model_validate(self.cluster(**more))
        transport = use_object_transport(app, cluster, NodeTimeouts(), "proxy")
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            yield transport, app
        finally:
            await runner.cleanup()

    async def put(self, transport: ObjectTransport, number: int) -> bool:
        """Write an object with its row; whether that is pending."""
        key = ObjectKey(0, 0, bytes([number]) * 16)
        row = ContainerUpdate("account", "container", (0,))
        reply = await transport.put(self.device, key, record(1), BODY, footer_of(BODY), row)
        return reply.pending


def field(app: web.Application, name: str) -> Any:
    """A field of the status report."""
    return json.loads(app[STATUS].report())[name]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def test_native_is_used_and_both_sides_say_so(place: Place) -> None:
    async with place.served() as server, place.calling() as (transport, caller):
        assert field(caller, "transports") == {"http": 0}
        assert await place.put(transport, 1)
        assert field(caller, "transports") == {"http": 0, "tcp": 1}
        assert field(server, "native") == {"port": place.native, "clients": 1, "refused": 0}
        assert field(server, "devices")["d0"]["pending"] == 1
        before = requests()
    assert requests() == before + 1


async def test_what_devices_are_told_and_asked_goes_over_http(place: Place) -> None:
    async with place.served(), place.calling() as (transport, caller):
        assert await transport.judge(place.device, Verdict()) is not None, "the device was just started"
        question = encode(Compare(0, 1, (0,), EMPTY_ROOT))
        assert isinstance(decode_reply(await transport.ask(place.device, question)), Equal)
        assert field(caller, "transports") == {"http": 1}


def requests() -> float:
    """PUTs to the device, as counted."""
    labels = {"device": "d0", "operation": "put", "outcome": "ok"}
    return REGISTRY.get_sample_value("swiftlet_object_requests_total", labels) or 0.0


async def test_keys_are_replaced_on_both_sides(place: Place) -> None:
    async with place.served(), place.calling() as (transport, caller):
        place.key_file.write_text("\n".join(reversed(KEYS)))
        async with asyncio.timeout(20):
            while len(field(caller, "keys")) < 2:  # noqa: ASYNC110 - looking is cheap
                await asyncio.sleep(0.01)
        assert await place.put(transport, 1)


async def test_same_machine(place: Place) -> None:
    # Directories of tests may be longer than a socket's path can be.
    with tempfile.TemporaryDirectory() as sockets:
        directory = {"native_socket_directory": sockets}
        async with place.served(**directory), place.calling(**directory) as (transport, caller):
            assert await place.put(transport, 1)
            assert field(caller, "transports") == {"http": 0, "same-node": 1}


async def test_a_port_that_is_taken(place: Place) -> None:
    with (
        socket.create_server(("127.0.0.1", place.native)),
        pytest.raises(SettingsError, match=rf"can't listen on port {place.native} .*; free the port, or choose"),
    ):
        async with place.served():
            pass


async def test_a_server_that_requires_rdma_does_not_start_without(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_device(monkeypatch, place.root)
    with pytest.raises(SettingsError, match=r"cluster\.rdma is required.*no RDMA device"):
        async with place.served(rdma="required"):
            pass


async def test_a_caller_that_requires_rdma_does_not_start_without(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_device(monkeypatch, place.root)
    with pytest.raises(SettingsError, match=r"cluster\.rdma is required.*no RDMA device"):
        async with place.calling(rdma="required"):
            pass


def no_device(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    """A build with RDMA where the kernel lists no device."""
    monkeypatch.setattr("swiftlet_native.rdma_version", lambda: "1.22.0")
    monkeypatch.setattr("swiftlet.transport.rdma.look.__defaults__", (root / "none", root / "none"))


async def test_rdma_that_is_off(place: Place) -> None:
    async with place.served(rdma="off") as server, place.calling(rdma="off") as (transport, _):
        assert await place.put(transport, 1)
        assert field(server, "rdma") == {"mode": "off", "ready": False, "missing": None}


async def test_without_rdma_both_sides_say_why_and_go_on(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swiftlet_native.rdma_version", lambda: None)
    async with place.served() as server, place.calling() as (transport, caller):
        assert await place.put(transport, 1)
        for app in (server, caller):
            state = field(app, "rdma")
            assert (state["mode"], state["ready"]) == ("auto", False)
            assert "built without RDMA" in state["missing"]
        assert field(server, "transports") == {"http": 0, "tcp": 1}


def test_by_which_name_callers_know_a_server() -> None:
    def host(**more: str) -> str:
        return ring_host(ObjectSection.model_validate({"devices": ["d0"], **more}))

    assert host(ring_host="pod-0.storage.data.svc", host="10.0.0.1") == "pod-0.storage.data.svc"
    assert host(host="10.0.0.1") == "10.0.0.1"
    assert host(host="::") == host() == socket.gethostname()
