"""`GET /v1/rings/{policy}`: the ring of a storage policy, by which clients with direct access find objects.

The answer is in the form of the ring's file; its ETag changes with it, so that who has it asks without a download.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web
from swiftlet_native import xxh3_64

from swiftlet.api.http.problems import ApiError, answer
from swiftlet.api.requests.metadata_requests import token_text
from swiftlet.auth.identity import Identity
from swiftlet.errors import SwiftletError
from swiftlet.placement.rings import Rings
from swiftlet.ring import codec
from swiftlet.ring.lookup import Ring
from swiftlet.settings.policies import Policies

PREFIX = "/v1/rings"


class RingDownloads:
    """Hands out the rings of one process, each encoded once."""

    def __init__(self, identify: Callable[[str], Identity], rings: Rings, policies: Policies) -> None:
        """`identify` returns the identity of a token, or raises Unauthorized."""
        self._identify = identify
        self._rings = rings
        self._policies = policies
        self._encoded: dict[int, tuple[Ring, bytes, str]] = {}

    async def get(self, request: web.Request) -> web.Response:
        """Answer with the ring of the policy with this name or index."""
        try:
            self._identify(token_text(request))
            body, etag, version = await self._content(self._index(request.match_info["policy"]))
        except SwiftletError as error:
            return answer(error)
        headers = {"ETag": f'"{etag}"', "X-Ring-Version": str(version), "Cache-Control": "no-cache"}
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


def add_ring_routes(app: web.Application, downloads: RingDownloads) -> None:
    """Add the route for rings to `app`."""
    app.router.add_get(PREFIX + "/{policy}", downloads.get)
