"""Two independent clusters in one process, each with a proxy and the worker that copies its containers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path as Directory
from typing import Any

import aiohttp

from swiftlet.api.reading.synced_form import synced_form
from swiftlet.api.tests.proxy import Answer, ManualClock, Proxy, proxy_of
from swiftlet.container_sync.comparing import Here
from swiftlet.container_sync.peer import HttpPeer, make_session
from swiftlet.container_sync.realms import RealmsFile
from swiftlet.container_sync.registry import SyncRegistry
from swiftlet.container_sync.worker import ContainerSync, SyncReport
from swiftlet.placement.tests.cluster import ACCOUNT, HASH_PATH, MemoryCluster, memory_cluster
from swiftlet.settings.container_sync import ContainerSyncSection
from swiftlet.timestamp import Timestamp

KEY = "the key of both containers"
REALM = "[us]\nkey = between operators\n{clusters}\n"


@dataclass
class Site:
    """One cluster."""

    name: str
    cluster: MemoryCluster
    proxy: Proxy
    realms: RealmsFile
    file: Directory
    session: aiohttp.ClientSession
    settings: ContainerSyncSection
    clocks: list[ManualClock]
    """Those of both clusters."""
    rank: int | None = 0
    """How many nodes come before this one."""
    passed_s: float = 0.0
    """The time by the worker's clock."""
    worker: ContainerSync = field(init=False)

    def __post_init__(self) -> None:
        """Start the worker."""
        self.restart()

    def restart(self) -> None:
        """A new process, which knows nothing."""
        cluster = self.cluster
        here = Here(
            registry=SyncRegistry(cluster.listings, self.proxy.api.clock.next),
            listings=cluster.listings,
            databases=cluster.listing_transport,
            objects=cluster.objects,
            ring=cluster.rings.container,
            hash_path=HASH_PATH,
            describe=lambda info: synced_form(info, self.proxy.clock),
        )
        self.worker = ContainerSync(
            here,
            self.realms,
            lambda target, key: HttpPeer(self.session, target, key),
            lambda _name: self.rank,
            self.settings,
            clock=lambda: self.passed_s,
            now_s=self.proxy.clock,
        )

    def wait(self, seconds: float) -> None:
        """Let time pass for both clusters' clients."""
        now = max(clock.now for clock in self.clocks) + seconds
        for clock in self.clocks:
            clock.now = now

    async def round(self, after_s: float = 1.0) -> SyncReport:
        """A round, some time after the last one."""
        self.passed_s += after_s
        return await self.worker.run_round()

    async def call(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, data: object = None
    ) -> Answer:
        """An answer to the owner, a second after the last one in either cluster."""
        self.wait(1)
        return await self.proxy.call(method, path, headers, data)

    async def copy_to(self, other: Site, here: str = "c", there: str = "c") -> None:
        """Have a container copied to one of the other cluster, which is made."""
        assert (await other.call("PUT", there, {"X-Container-Sync-Key": KEY})).status in {201, 202}
        place = f"//US/{other.name}/{ACCOUNT}/{there}"
        headers = {"X-Container-Sync-To": place, "X-Container-Sync-Key": KEY}
        assert (await self.call("PUT", here, headers)).status in {201, 202}

    async def listed(self, container: str = "c") -> dict[str, str]:
        """The names in a container, and when they were modified."""
        rows = await self.proxy.call("GET", container, query="format=json")
        assert rows.status == 200
        return {row["name"]: row["last_modified"] for row in json.loads(rows.body)}

    async def time_of(self, path: str) -> Timestamp:
        """When an object was modified."""
        return Timestamp.parse((await self.proxy.call("HEAD", path)).headers["X-Timestamp"])


@asynccontextmanager
async def two_sites(root: Directory, **settings: Any) -> AsyncIterator[tuple[Site, Site]]:
    """Clusters `east` and `west` of the realm `us`, with a container `c` each; both know both."""
    async with AsyncExitStack() as stack:
        sites: list[Site] = []
        clocks: list[ManualClock] = []
        for name in ("east", "west"):
            directory = root / name
            directory.mkdir()
            file = directory / "realms.conf"
            file.write_text(REALM.format(clusters=""))
            realms = RealmsFile(file, f"//us/{name}")
            cluster = await stack.enter_async_context(memory_cluster(directory, devices=4))
            await cluster.make_container()
            proxy = await stack.enter_async_context(proxy_of(cluster, directory, ttl_s=0.0, realms=realms))
            session = await stack.enter_async_context(make_session(16, 5.0, None))
            clocks.append(proxy.clock)
            section = ContainerSyncSection(**settings)
            sites.append(Site(name, cluster, proxy, realms, file, session, section, clocks))
        clusters = "\n".join(f"cluster_{site.name} = http://127.0.0.1:{site.proxy.port}/v1/" for site in sites)
        for site in sites:
            site.file.write_text(REALM.format(clusters=clusters))
            assert site.realms.reload()
        yield sites[0], sites[1]
