"""The API in one process over a cluster in memory, with a client that is logged in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path as Directory
from typing import Any

import yaml
from aiohttp import ClientResponse, web
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from swiftlet.api.app import add_api_routes
from swiftlet.api.context.core import ApiOptions, SwiftApi
from swiftlet.api.context.logins import Logins
from swiftlet.api.context.revoking import Revocations
from swiftlet.api.context.shared_changes import SharedChanges
from swiftlet.auth.failures import LoginLimit
from swiftlet.auth.identity import RESELLER_PREFIX, Identity, Role
from swiftlet.auth.tokens import Token, Tokens
from swiftlet.auth.users import Users, hash_secret
from swiftlet.container_sync.realms import RealmsFile
from swiftlet.front.routes import CodedPeers
from swiftlet.front.tests.served import front_server
from swiftlet.front.withdrawing import Withdrawals
from swiftlet.main.services.swift_api import swift_api
from swiftlet.placement.rings import Rings
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster
from swiftlet.settings import LimitsSection, PolicySection
from swiftlet.settings.policies import Policies
from swiftlet.timestamp import TimestampClock
from swiftlet.web.app import create_base_app

POLICIES = Policies([PolicySection(index=0, name="gold", default=True), PolicySection(index=1, name="silver")])
SMALL = 1000
"""Larger objects are streamed."""
_TWICE = frozenset({200, 206, 304, 412, 416})
"""Statuses of answers to reads that the front may give."""
_OF_ONE_ANSWER = ("Date", "X-Trans-Id", "X-Openstack-Request-Id")
LOGIN, SECRET = "test:tester", "secret"
_USERS = yaml.safe_dump([{"account": "test", "user": "tester", "roles": ["admin"], "secret_hash": hash_secret(SECRET)}])


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ManualClock:
    """A clock in seconds that only moves when told to."""

    def __init__(self, now: float = 1000.0) -> None:
        """Begin at `now`."""
        self.now = now

    def __call__(self) -> float:
        """The time."""
        return self.now

    def ns(self) -> int:
        """The time in nanoseconds."""
        return int(self.now * 1_000_000_000)


@dataclass
class Proxy:
    """One proxy process."""

    cluster: MemoryCluster
    api: SwiftApi
    client: TestClient[web.Request, web.Application]
    clock: ManualClock
    token: dict[str, str] = field(default_factory=dict)
    withdrawals: Withdrawals = field(default_factory=Withdrawals)
    """Told of what changes in the caches of `api`."""
    twice: bool = False
    """Whether reads are made again, by the front, with an equal answer."""

    def url(self, path: str, query: str = "") -> URL:
        """A URL below the account, quoted already."""
        return URL(f"/v1/{ACCOUNT}/{path}" + (f"?{query}" if query else ""), encoded=True)

    async def open(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, data: Any = None, query: str = ""
    ) -> ClientResponse:
        """An answer whose body is still to be read."""
        given = {**self.token, **(headers or {})}
        return await self.client.request(method, self.url(path, query), headers=given, data=data)

    async def call(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, data: Any = None, query: str = ""
    ) -> Answer:
        """A whole answer."""
        async with await self.open(method, path, headers, data, query) as response:
            answer = Answer(response.status, response.headers.copy(), await response.read())
        await self._again(answer, method, path, {**self.token, **(headers or {})}, query)
        return answer

    async def _again(
        self, before: Answer, method: str, path: str, headers: Mapping[str, str] | None, query: str
    ) -> None:
        """Read once more what has been read, now that there may be a grant for it."""
        if not self.twice or method not in {"GET", "HEAD"} or before.status not in _TWICE or "/" not in path:
            return
        if before.headers.get("Content-Type", "").startswith("multipart/byteranges"):
            return  # Its boundary is another one each time.
        for _ in range(5):
            await asyncio.sleep(0)
        async with self.client.request(method, self.url(path, query), headers=headers) as response:
            body = await response.read()
            told = [
                sorted((name, value) for name, value in given.items() if name not in _OF_ONE_ANSWER)
                for given in (before.headers, response.headers)
            ]
        assert (response.status, told[1], body) == (before.status, told[0], before.body)

    def token_of(self, login: str, *roles: Role) -> dict[str, str]:
        """The token header of `account:user`."""
        account, _, user = login.partition(":")
        identity = Identity(RESELLER_PREFIX + account, user, frozenset(roles))
        return {"X-Auth-Token": self.api.tokens.issue(identity)[0]}

    async def anonymous(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, data: Any = None, query: str = ""
    ) -> Answer:
        """A whole answer to a request without a token."""
        async with self.client.request(method, self.url(path, query), headers=headers, data=data) as response:
            answer = Answer(response.status, response.headers.copy(), await response.read())
        await self._again(answer, method, path, headers, query)
        return answer

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self.client.port is not None
        return self.client.port


class _AnyUsers(Users):
    """Users of a file, and any others: tests give out tokens to them without a login, which name no generation."""

    def still(self, token: Token) -> None:
        if token.generation:
            super().still(token)


@asynccontextmanager
async def proxy_of(
    cluster: MemoryCluster,
    root: Directory,
    *,
    ttl_s: float = 1000.0,
    client_timeout_s: float = 10.0,
    storage_url: str | None = None,
    limits: LimitsSection | None = None,
    through_front: bool = False,
    changes: SharedChanges | None = None,
    policies: Policies | None = None,
    realms: RealmsFile | None = None,
    coded: tuple[Rings, CodedPeers] | None = None,
    **sections: Any,
) -> AsyncIterator[Proxy]:
    """A proxy of this cluster; several share what is stored, and processes of one proxy their `changes`.

    Requests come to one that is made `through_front` by the native front, and its devices are native ones. What is read
    is read twice then: Python answers first, and the front once it has been given the grant. `coded` are the rings and
    the devices of coded objects.
    """
    users = root / "users.yaml"
    users.write_text(_USERS)
    clock, known, withdrawals = ManualClock(), _AnyUsers(users), Withdrawals()
    timestamps = TimestampClock(now_ns=clock.ns)
    revocations = Revocations(cluster.listings, timestamps)
    tokens = Tokens([b"k" * 32], conditions=(known.still, revocations.check))
    options = ApiOptions(
        limits or LimitsSection(),
        policies or POLICIES,
        client_timeout_s=client_timeout_s,
        small_object_bytes=SMALL,
        container_info_ttl_s=ttl_s,
        storage_url=storage_url,
        **sections,
    )
    api = swift_api(
        listings=cluster.listings,
        objects=cluster.objects,
        tokens=tokens,
        revocations=revocations,
        users=known,
        logins=Logins(known, LoginLimit(2, 60.0, clock=clock)),
        clock=timestamps,
        options=options,
        changes=changes or SharedChanges(),
        changed=withdrawals.withdraw,
        realms=realms,
    )
    app = create_base_app("proxy", trust_request_ids=False, managed_apart=True)
    add_api_routes(app, api)
    token = {"X-Auth-Token": tokens.issue(Identity(ACCOUNT, "tester", frozenset({Role.ADMIN})))[0]}
    async with AsyncExitStack() as stack:
        server = TestServer(app)
        if through_front:
            fronted = front_server(app, api, cluster, root, withdrawals, coded=coded)
            server, _, _ = await stack.enter_async_context(fronted)
        client = await stack.enter_async_context(TestClient(server, auto_decompress=False))
        yield Proxy(cluster, api, client, clock, token, withdrawals, through_front)
