"""A small cluster with direct access: an object server and a container server with three devices each, a metadata
server and a proxy, all in this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from swiftlet.auth.users import hash_secret
from swiftlet.main.services import container, metadata, proxy
from swiftlet.main.services import object as object_service
from swiftlet.placement.tests.cluster import HOUR
from swiftlet.ring import RingBuilder
from swiftlet.ring.codec import save
from swiftlet.settings import ContainerSettings, MetadataSettings, ObjectSettings, ProxySettings
from swiftlet.testing.ports import object_ports
from swiftlet.web.serve import ServeOptions, StopRequest, serve
from swiftlet.web.sockets import listen

KEY = "the key of the tests, which is long enough for it"
DEVICES = ["d0", "d1", "d2"]


class DirectCluster:
    """Where everything is, and a session with the token of an owner."""

    def __init__(self, root: Path, **cluster: Any) -> None:
        """Prepare the files; `cluster` are further settings of the section."""
        self.root = root
        self.more = cluster
        self.objects, self.containers, self.metadata, self.proxy = object_ports(4)
        self.key_file, self.users_file, self.quota_file = root / "key", root / "users.yaml", root / "quota.yaml"
        self.key_file.write_text(KEY)
        self.users = [("test", "tester", ["admin"]), ("test", "rita", ["reader"]), ("other", "sue", ["admin"])]
        self.write_users()
        self.quota_file.write_text("precise: true\nlevels: {default: {}}\n")
        (root / "rings").mkdir()
        for name, port in (("account", self.containers), ("container", self.containers), ("object-0", self.objects)):
            self.publish(name, port)
        self.session: aiohttp.ClientSession
        self.token = ""

    def publish(self, name: str, port: int) -> None:
        """Write a ring of three devices on one server."""
        builder = RingBuilder(4, 3, min_part_hours=0)
        for zone, device in enumerate(DEVICES):
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
        return {"cluster": cluster, "policies": [{"name": "gold", "index": 0, "default": True}], **sections}

    def _apps(self) -> list[tuple[web.Application, int]]:
        section = {"host": "127.0.0.1", "devices": DEVICES}
        for kind in ("objects", "containers"):
            for device in DEVICES:
                (self.root / kind / device).mkdir(parents=True, exist_ok=True)
        auth = {"users_file": str(self.users_file), "users_check_interval_s": 0.02}
        quota = {"file": str(self.quota_file), "check_interval_s": 0.02}
        of_objects = {**section, "port": self.objects, "devices_dir": self.root / "objects", "row_interval_s": 0.1}
        of_containers = {
            **section,
            "port": self.containers,
            "devices_dir": self.root / "containers",
            "reserve_bytes": 0,
        }
        of_metadata = {"host": "127.0.0.1", "port": self.metadata, "connect_timeout_s": 5.0}
        of_proxy = {"host": "127.0.0.1", "port": self.proxy, "connect_timeout_s": 5.0, "front": False}
        return [
            (object_service.create_app(ObjectSettings.model_validate(self._settings(object=of_objects))), self.objects),
            (
                container.create_app(ContainerSettings.model_validate(self._settings(container=of_containers))),
                self.containers,
            ),
            (
                metadata.create_app(
                    MetadataSettings.model_validate(self._settings(metadata=of_metadata, auth=auth, quota=quota))
                ),
                self.metadata,
            ),
            (
                proxy.create_app(ProxySettings.model_validate(self._settings(proxy=of_proxy, auth=auth, quota=quota))),
                self.proxy,
            ),
        ]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[DirectCluster]:
        """Run it."""
        async with AsyncExitStack() as stack:
            for app, port in self._apps():
                await stack.enter_async_context(_served(app, port))
            self.session = await stack.enter_async_context(aiohttp.ClientSession())
            self.token = await self.login("test:tester")
            yield self

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
