"""Who may read in which container for the next moment: what the API would decide, by the API's own functions."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from swiftlet.api.access import TokenAccess
from swiftlet.api.core import SwiftApi
from swiftlet.api.static_web import site_of
from swiftlet.api.versioning import has_versions
from swiftlet.auth.identity import Identity, authorize
from swiftlet.errors import Forbidden, SwiftletError
from swiftlet.names import Path, parse_path

VALID_S = 1.0
"""How long a grant holds."""
_ANY = "any object"


@dataclass(frozen=True, slots=True)
class Grant:
    """Whoever was asked about may read every object of a container."""

    path: Path
    """Of the container."""
    policy: int
    valid_s: float

    @property
    def container(self) -> bytes:
        """`/account/container/`, as it stands before the objects' names where they are hashed."""
        return f"{self.path}/".encode()


class Deciding:
    """Decides by what a proxy process remembers; `now` in seconds since the epoch."""

    def __init__(self, api: SwiftApi, now: Callable[[], float] = time.time) -> None:
        """Decides nothing where the proxy remembers containers for so short a time that a grant would outlive that."""
        self._api = api
        self._now = now
        self._max_age_s = api.options.container_info_ttl_s - VALID_S
        """What a grant rests on is not asked anew before the grant's end."""

    async def decide(self, token: str, prefix: str) -> Grant | None:
        """Whether a request with `token` (none: empty) may read any object below `prefix`, `/v1/ACCOUNT/CONTAINER/`
        as clients send it; None when not, and when the answer would depend on more than that.
        """
        if self._max_age_s <= 0:
            return None
        try:
            return await self._decide(token, parse_path(prefix.removeprefix("/v1") + "o"))
        except SwiftletError:
            # Refused, not there, not to be found out: the API says so to whoever asks.
            return None

    async def _decide(self, token: str, below: Path) -> Grant | None:
        api, identity, valid_s = self._api, None, VALID_S
        assert below.container is not None
        path, any_object = Path(below.account, below.container), Path(below.account, below.container, _ANY)
        if token:
            known = api.tokens.read(token)
            identity, valid_s = known.identity, min(valid_s, known.expires - self._now())
        container = await api.containers.get(path.account, below.container, self._max_age_s)
        if not _by_role(identity, any_object):
            await api.accounts.metadata(path.account, self._max_age_s)
        # Requests with a Referer are not hot.
        await TokenAccess(api.containers, api.accounts, identity, None).require("GET", any_object)
        visited = identity is None and api.options.static_web.enabled and site_of(container.metadata).any
        if has_versions(container) or visited or valid_s <= 0:
            return None
        return Grant(path, container.policy, valid_s)


def _by_role(identity: Identity | None, path: Path) -> bool:
    if identity is None:
        return False
    try:
        authorize(identity, "GET", path)
    except Forbidden:
        return False
    return True
