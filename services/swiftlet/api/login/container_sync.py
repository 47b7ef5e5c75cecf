"""Requests that another cluster's container sync has signed (X-Container-Sync-Auth).

https://docs.openstack.org/swift/latest/overview_container_sync.html. Both the realm's key, which operators share, and
the container's X-Container-Sync-Key, which its owner sets on both sides, are needed for a signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, unquote_to_bytes

from aiohttp import web

from swiftlet.api.context.access import SyncAccess
from swiftlet.api.context.core import Call, SwiftApi, Synced
from swiftlet.api.context.privileged import SYNC_KEY
from swiftlet.api.http.problems import ApiError
from swiftlet.container_sync import signature
from swiftlet.container_sync.signature import SYNC_AUTH
from swiftlet.errors import NotFound
from swiftlet.names import Path
from swiftlet.timestamp import Timestamp

MAX_AHEAD_S = 60.0
"""How far the clock of another cluster may be ahead: nothing could replace an object from a distant future."""
_LISTING = frozenset({"format", "limit", "marker", "end_marker", "prefix", "reverse"})
_ITSELF = {"symlink": "get", "multipart-manifest": "get"}
"""The query that asks for a link or a manifest itself: that is what is copied."""


class Invalid(ApiError):
    """401 without the reason, in the reference's words."""

    def __init__(self) -> None:
        """Name the scheme for which the signature is."""
        super().__init__(
            401,
            "X-Container-Sync-Auth header not valid; contact cluster operator for support.",
            {"WWW-Authenticate": "SwiftContainerSync"},
        )


def is_signed(api: SwiftApi, request: web.Request, path: Path) -> bool:
    """Return whether a request is one of container sync; where that is not enabled there are none."""
    return SYNC_AUTH in request.headers and path.container is not None and api.realms.enabled


async def admit(api: SwiftApi, request: web.Request, path: Path, query: Mapping[str, str]) -> Call:
    """Return the call that a signed request is. Raises Invalid, and 400 for a wrong time.

    A signature does not cover the query, so only what can do no harm is taken from it.
    """
    assert path.container is not None
    signed = signature.parse_signed(request.headers[SYNC_AUTH])
    realm = None if signed is None else api.realms.realms.named(signed.realm)
    try:
        container = await api.containers.fresh(path.account, path.container)
    except NotFound:
        raise Invalid from None
    user_key, time = container.metadata.get(SYNC_KEY), request.headers.get("X-Timestamp")
    if signed is None or realm is None or not user_key:
        raise Invalid
    keys = [realm.key] if realm.key2 is None else [realm.key, realm.key2]
    if not signature.is_signed(signed, request.method, _signed_path(request), time, keys, user_key):
        raise Invalid
    if path.obj is None:
        asked = {name: value for name, value in query.items() if name in _LISTING}
    else:
        asked = dict(_ITSELF) if request.method == "HEAD" else {}
    synced = Synced(None if time is None else _time(api, time))
    return Call(api, request, path, asked, SyncAccess(path.account, path.container), synced=synced)


def _signed_path(request: web.Request) -> str:
    """Return the path in the one spelling that is signed."""
    return quote(unquote_to_bytes(request.rel_url.raw_path.encode("utf-8", "surrogateescape")))


def _time(api: SwiftApi, text: str) -> Timestamp:
    """Return the time in X-Timestamp, in any form that clusters send; 400 for another one."""
    plain, mark, offset = text.strip().partition("_")
    try:
        at = Timestamp.parse(plain)
        if mark:
            # Versions of one time: the reference tells them apart by 16 hexadecimal digits.
            at = Timestamp(at.value | min(int(offset, 16), (1 << 14) - 1))
    except ValueError as error:
        raise ApiError(400, f"X-Timestamp: {error}") from error
    now = api.clock.now()
    if at.seconds > now.seconds + MAX_AHEAD_S:
        raise ApiError(
            400,
            f"X-Timestamp {at.normal} is more than {MAX_AHEAD_S:.0f} s ahead of this cluster's clock, {now.normal}: "
            "set the clocks of both clusters",
        )
    return at
