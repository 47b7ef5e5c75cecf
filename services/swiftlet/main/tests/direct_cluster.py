"""A small cluster with direct access: object servers with three devices together, a container server with as many, a
metadata server and a proxy, all in this process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import structlog
import yaml
from aiohttp import web

from swiftlet.auth.users import hash_secret
from swiftlet.boundaries.objects import Verdict
from swiftlet.main.services import container, metadata, proxy
from swiftlet.main.services import object as object_service
from swiftlet.placement.tests.cluster import HOUR
from swiftlet.ring import RingBuilder
from swiftlet.ring.codec import load, save
from swiftlet.settings import ContainerSettings, MetadataSettings, ObjectSettings, ProxySettings
from swiftlet.testing.network import Network
from swiftlet.testing.ports import object_ports
from swiftlet.transport.http_client import NodeClient
from swiftlet.transport.http_devices import HttpDevices
from swiftlet.transport.signing import ClusterKey
from swiftlet.transport.tls import PeerTls
from swiftlet.web.serve import ServeOptions, StopRequest, serve
from swiftlet.web.sockets import listen

T = TypeVar("T")
KEY = "the key of the tests, which is long enough for it"
DEVICES = ["d0", "d1", "d2"]
POLICIES = [{"name": "gold", "index": 0, "default": True}, {"name": "silver", "index": 5}]


class DirectCluster:
    """Where everything is, and a session with the token of an owner."""

    def __init__(
        self,
        root: Path,
        object_servers: int = 1,
        guest_offset: int | None = None,
        objects: Mapping[str, Any] | None = None,
        **cluster: Any,
    ) -> None:
        """Prepare the files; `cluster` and `objects` are further settings of the sections cluster and object.

        Of several object servers each has one device. `guest_offset` is what guests are told of how far native ports
        are above those in the ring, if it is not the truth.
        """
        self.root = root
        self.more = cluster
        self.more_of_objects = dict(objects or {})
        self.guest_offset = guest_offset
        self.containers, self.metadata, self.proxy, *self.object_ports = object_ports(3 + object_servers)
        self.objects = self.object_ports[0]
        self._served: dict[int, AsyncExitStack] = {}
        self.requests: list[str] = []
        """Requests to the proxy and the metadata server."""
        self.key_file, self.users_file, self.quota_file = root / "key", root / "users.yaml", root / "quota.yaml"
        self.key_file.write_text(KEY)
        self.users = [("test", "tester", ["admin"]), ("test", "rita", ["reader"]), ("other", "sue", ["admin"])]
        self.write_users()
        self.quota_file.write_text("precise: true\nlevels: {default: {}}\n")
        (root / "rings").mkdir()
        for name in ("account", "container"):
            self.publish(name, [self.containers])
        for policy in POLICIES:
            self.publish(f"object-{policy['index']}", self.object_ports)
        self.session: aiohttp.ClientSession
        self.loop: asyncio.AbstractEventLoop
        self.token = ""

    def publish(self, name: str, ports: list[int]) -> None:
        """Write a ring of three devices on the servers at these ports."""
        builder = RingBuilder(4, 3, min_part_hours=0)
        for zone, device in enumerate(DEVICES):
            port = ports[zone % len(ports)]
            builder.add_device(
                name=device, host="127.0.0.1", port=port, device=device, region="r", zone=f"z{zone}", weight=1
            )
        builder.rebalance(HOUR)
        save(builder.ring, self.root / "rings" / f"{name}.ring")

    def write_users(self) -> None:
        """Write the users file."""
        users = [
            {"account": account, "user": user, "roles": roles, "secret_hash": _HASH}
            for account, user, roles in self.users
        ]
        self.users_file.write_text(yaml.safe_dump(users))

    @property
    def url(self) -> str:
        """The metadata server's URL."""
        return f"http://127.0.0.1:{self.metadata}"

    def _settings(self, **sections: Any) -> dict[str, Any]:
        cluster = {
            "key_file": str(self.key_file),
            "key_check_interval_s": 0.02,
            "hash_path_suffix": "suffix of the tests",
            "rings": str(self.root / "rings"),
            "ring_check_interval_s": 0.05,
            "native_pool_bytes": 16 << 20,
            "direct_access": True,
            **self.more,
        }
        return {"cluster": cluster, "policies": list(POLICIES), **sections}

    def _apps(self) -> list[tuple[web.Application, int]]:
        section = {"host": "127.0.0.1", "devices": DEVICES}
        for kind in ("objects", "containers"):
            for device in DEVICES:
                (self.root / kind / device).mkdir(parents=True, exist_ok=True)
        of_containers = {
            **section,
            "port": self.containers,
            "devices_dir": self.root / "containers",
            "reserve_bytes": 0,
        }
        of_metadata = {"host": "127.0.0.1", "port": self.metadata, "connect_timeout_s": 5.0}
        told = {} if self.guest_offset is None else {"native_port_offset": self.guest_offset}
        metadata_settings = self._settings(metadata=of_metadata, **self._rules())
        metadata_settings["cluster"].update(told)
        apps = [
            (
                container.create_app(ContainerSettings.model_validate(self._settings(container=of_containers))),
                self.containers,
            ),
            (metadata.create_app(MetadataSettings.model_validate(metadata_settings)), self.metadata),
            (self._proxy_app(self.proxy, front=False), self.proxy),
        ]
        for app, _ in apps[1:]:
            app.on_response_prepare.append(self._count)
        return [(self._object_app(port), port) for port in self.object_ports] + apps

    def _rules(self) -> dict[str, Any]:
        """Return the sections about users and quotas."""
        auth = {"users_file": str(self.users_file), "users_check_interval_s": 0.02}
        return {"auth": auth, "quota": {"file": str(self.quota_file), "check_interval_s": 0.02}}

    def _proxy_app(self, port: int, *, front: bool) -> web.Application:
        section = {"host": "127.0.0.1", "port": port, "connect_timeout_s": 5.0, "front": front}
        return proxy.create_app(ProxySettings.model_validate(self._settings(proxy=section, **self._rules())))

    def _object_app(self, port: int) -> web.Application:
        number, count = self.object_ports.index(port), len(self.object_ports)
        devices = [device for zone, device in enumerate(DEVICES) if zone % count == number]
        section: dict[str, Any] = {"host": "127.0.0.1", "port": port, "devices": devices, "row_interval_s": 0.1}
        section |= {"devices_dir": self.root / "objects", **self.more_of_objects}
        return object_service.create_app(ObjectSettings.model_validate(self._settings(object=section)))

    async def serve(self, app: web.Application, port: int) -> None:
        """Serve this app at a port until it is stopped."""
        served = AsyncExitStack()
        await served.enter_async_context(_served(app, port))
        self._served[port] = served

    async def stop(self, port: int) -> None:
        """Stop what is served at a port; no harm if it was stopped before."""
        if port in self._served:
            await self._served.pop(port).aclose()

    async def serve_objects(self, number: int) -> None:
        """Start an object server again that was stopped."""
        port = self.object_ports[number]
        await self.serve(self._object_app(port), port)

    async def _count(self, request: web.Request, _: web.StreamResponse) -> None:
        self.requests.append(f"{request.method} {request.path}")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[DirectCluster]:
        """Run it."""
        async with AsyncExitStack() as stack:
            for app, port in self._apps():
                await self.serve(app, port)
                stack.push_async_callback(self.stop, port)
            self.session = await stack.enter_async_context(aiohttp.ClientSession())
            self.token = await self.login("test:tester")
            await self.prove()
            yield self

    @contextmanager
    def in_thread(self) -> Iterator[DirectCluster]:
        """Run it in an event loop of its own, for tests that share it; `wait` and `there` are for its coroutines."""
        self.loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self.loop.run_forever)
        # What pytest captures is read and cut by its thread, and must not be written by another one meanwhile.
        before = structlog.get_config()
        structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
        thread.start()
        running = self.running()
        try:
            self.wait(running.__aenter__())
            yield self
            self.wait(running.__aexit__(None, None, None))
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            thread.join()
            self.loop.close()
            structlog.configure(**before)

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine of this cluster returns."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    async def there(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine of this cluster returns, while another event loop goes on."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self.loop))

    async def prove(self) -> bool:
        """Tell the devices that they lack nothing, as a replicator would; return whether one of them did not know.

        They don't after their start, and when this process has stood still for a moment, as on a busy machine.
        """
        in_doubt = False
        tls = PeerTls(self.more.get("encryption", "none"), [KEY.encode()])
        peers = HttpDevices(NodeClient(key=ClusterKey(KEY.encode()), tls=tls.client))
        for device in load(self.root / "rings" / "object-0.ring").devices:
            assert device is not None
            doubt = await peers.judge(device, Verdict())
            in_doubt = in_doubt or doubt is not None
            assert doubt is None or await peers.judge(device, Verdict(epoch=doubt.epoch, whole=True)) is None
        await peers.close()
        return in_doubt

    async def login(self, user: str) -> str:
        """Return a token of a user."""
        headers = {"X-Auth-User": user, "X-Auth-Key": "secret"}
        async with self.session.get(f"http://127.0.0.1:{self.proxy}/auth/v1.0", headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            return answer.headers["X-Auth-Token"]

    async def http(
        self, method: str, path: str, data: bytes = b"", headers: dict[str, str] | None = None, token: str | None = None
    ) -> tuple[int, bytes]:
        """Make a request to the proxy below the account; return status and body."""
        url = f"http://127.0.0.1:{self.proxy}/v1/AUTH_test/{path}"
        sent = {"X-Auth-Token": token or self.token, **(headers or {})}
        async with self.session.request(method, url, data=data, headers=sent) as answer:
            return answer.status, await answer.read()

    async def ask(self, fields: Mapping[str, Any], token: str | None = None) -> tuple[int, Any]:
        """Ask for a grant; return status, and JSON or text."""
        headers = {"X-Auth-Token": token or self.token}
        async with self.session.post(f"{self.url}/v1/grants", json=dict(fields), headers=headers) as answer:
            return answer.status, await (answer.json() if answer.status == 200 else answer.text())


@asynccontextmanager
async def _served(app: web.Application, port: int) -> AsyncIterator[None]:
    asked = StopRequest()
    task = asyncio.create_task(serve(app, [listen("127.0.0.1", port)], ServeOptions(drain_s=0.1), asked))
    while not await _answers(port):
        assert not task.done(), task.exception()
        await asyncio.sleep(0.01)
    yield
    asked.again()
    await task


async def _answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


_HASH = hash_secret("secret")


@asynccontextmanager
async def networks_before(cluster: DirectCluster, offset: int) -> AsyncIterator[list[Network]]:
    """Yield a network before each device, in their order, whose ports are `offset` above those in the ring."""
    networks = [Network(port + 1000) for port in cluster.object_ports]
    async with AsyncExitStack() as stack:
        for network in networks:
            server = await asyncio.start_server(network.serve, "127.0.0.1", network.port - 1000 + offset)
            stack.callback(server.close)
        yield networks
    for network in networks:
        await network.end()
