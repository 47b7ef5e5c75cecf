"""`GET /v1/rings/{policy}`: the ring of a storage policy, by which clients with direct access find objects.

The answer is in the form of the ring's file; its ETag changes with it, so that who has it asks without a download.
`GET /v1/rings?account=A&container=C` is answered with the ring of the container's policy, whose index is in
X-Policy-Index: so a client that knows nothing yet asks for the ring beside its first grant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from urllib.parse import quote

from aiohttp import web
from swiftlet_native import xxh3_64

from swiftlet.api.context.core import Facts
from swiftlet.api.http.problems import ApiError, answer
from swiftlet.api.requests.metadata_requests import token_text
from swiftlet.api.writing import plain_access
from swiftlet.auth.identity import Identity
from swiftlet.errors import Forbidden, SwiftletError
from swiftlet.names import Path, parse_path
from swiftlet.placement.rings import Rings
from swiftlet.ring import codec
from swiftlet.ring.lookup import Ring
from swiftlet.settings.policies import Policies

PREFIX = "/v1/rings"


class RingDownloads:
    """Hands out the rings of one process, each encoded once."""

    def __init__(self, identify: Callable[[str], Identity], rings: Rings, policies: Policies, facts: Facts) -> None:
        """`identify` returns the identity of a token, or raises Unauthorized."""
        self._identify = identify
        self._facts = facts
        self._rings = rings
        self._policies = policies
        self._encoded: dict[int, tuple[Ring, bytes, str]] = {}

    async def get(self, request: web.Request) -> web.Response:
        """Answer with the ring of the policy with this name or index."""
        try:
            self._identify(token_text(request))
            return await self._answer(request, self._index(request.match_info["policy"]))
        except SwiftletError as error:
            return answer(error)

    async def get_of_container(self, request: web.Request) -> web.Response:
        """Answer with the ring of a container's policy to who may read or store its objects."""
        account = request.query.get("account", "")
        try:
            identity = self._identify(token_text(request))
            if not account or not request.query.get("container"):
                raise ApiError(400, f"name a policy, {PREFIX}/POLICY, or a container, {PREFIX}?account=A&container=C")
            container = _container(account, request.query["container"])
            for method in ("GET", "PUT"):
                if await plain_access.admits(self._facts, identity, container, method):
                    break
            else:
                raise Forbidden(f"{identity} may neither read nor store objects of the container")
            info = await self._facts.containers.get(container.account, str(container.container))
            return await self._answer(request, info.policy)
        except SwiftletError as error:
            return answer(error, account or "unknown")

    async def _answer(self, request: web.Request, policy: int) -> web.Response:
        body, etag, version = await self._content(policy)
        headers = {"ETag": f'"{etag}"', "X-Ring-Version": str(version), "Cache-Control": "no-cache"}
        headers["X-Policy-Index"] = str(policy)
        if any(one.value == etag or one.value == "*" for one in request.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        return web.Response(body=body, headers=headers, content_type="application/octet-stream")

    def _index(self, text: str) -> int:
        named = self._policies.named(text)
        if named is not None:
            return named.index
        if text.isascii() and text.isdigit() and len(text) <= 5 and self._policies.at(int(text)) is not None:
            return int(text)
        raise ApiError(404, "there is no storage policy of that name or index")

    async def _content(self, index: int) -> tuple[bytes, str, int]:
        ring = self._rings.objects(index)
        known = self._encoded.get(index)
        if known is None or known[0] is not ring:
            body = await asyncio.to_thread(codec.encode, ring)
            known = self._encoded[index] = ring, body, f"{ring.version}-{xxh3_64(body):016x}"
        return known[1], known[2], ring.version


def _container(account: str, container: str) -> Path:
    """Return the container of these names. Raises InvalidName."""
    return parse_path(f"/{quote(account, safe='')}/{quote(container, safe='')}")


def add_ring_routes(app: web.Application, downloads: RingDownloads) -> None:
    """Add the routes for rings to `app`."""
    app.router.add_get(PREFIX, downloads.get_of_container)
    app.router.add_get(PREFIX + "/{policy}", downloads.get)
