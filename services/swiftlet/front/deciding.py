"""Grants: who may read and write in which container for the next moment, as the API's own functions decide."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from swiftlet.api.context.core import SwiftApi
from swiftlet.api.context.fresh_cache import FRESH_S
from swiftlet.api.reading.static_web import site_of
from swiftlet.api.reading.versioning import has_versions
from swiftlet.api.writing import plain_access
from swiftlet.api.writing.quota_checks import Limited, limits_of
from swiftlet.errors import SwiftletError
from swiftlet.names import Path, parse_path
from swiftlet.policy_moves import Phase
from swiftlet.settings.sections import LimitsSection

VALID_S = 1.0
"""Seconds for which a grant to read is valid at most."""
_RENEWED_S = 0.74
"""Seconds after which the facts behind a grant by an ACL are read again; they count until they are `FRESH_S` old.

Grants in use are checked several times in the difference.
"""
WRITE_VALID_S = 0.5
"""Seconds for which a grant to write is valid: facts that all proxies have to agree on are not remembered
for longer.
"""
SMALL_BYTES = 1024 * 1024
"""The largest size in bytes of an object that may be stored by a grant."""
_TRIES = 2
"""How often a decision is made that took longer than it is valid: the second time what it rests on is known."""
_ITEMS, _ITEM_NAME, _ITEM_VALUE = 16, 64, 256
"""The largest number of an object's metadata items, and the largest sizes of a name and a value in bytes."""
_MAX_HEAD = 4096
"""The largest size in bytes of the request's head."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The sender of a request may read, or store and delete, every object of a container."""

    path: Path
    policy: int
    valid_s: float
    reads: bool = False
    """Of a grant to write: whether the sender may also know which objects there are, as conditions of a write tell."""
    xxh3_etags: bool = False
    """Whether ETags of written objects are computed from xxh3 when the client sends no MD5."""
    limits: tuple[Limited, ...] = ()
    """What limits the objects that are written."""

    @property
    def container(self) -> bytes:
        """`/account/container/`, which precedes the object's name in what is hashed."""
        return f"{self.path}/".encode()


class Deciding:
    """Decides by what a proxy process has cached; `now` is in seconds since the epoch."""

    def __init__(self, api: SwiftApi, now: Callable[[], float] = time.time) -> None:
        """Make no grants where the proxy caches containers for a shorter time than a grant is valid.

        `now` returns seconds since the epoch.
        """
        self._api = api
        self._now = now
        self._max_age_s = api.options.container_info_ttl_s - VALID_S
        """The greatest age of cached facts on which a grant may rest: they last until the grant ends."""
        self._renewed_s = min(self._max_age_s, _RENEWED_S)
        agreed_s = min(api.options.container_info_ttl_s, api.options.versioning.agreement_s, FRESH_S)
        self._write_max_age_s = agreed_s - WRITE_VALID_S
        if api.options.limits.max_header_size < _MAX_HEAD:
            # With lower limits, the front would answer requests that have to be refused.
            self._max_age_s = self._write_max_age_s = 0.0

    async def decide(self, token: str, prefix: str, write: bool = False) -> Grant | None:
        """Return a grant if a request with `token` (empty for none) may read, or with `write` store and delete, any
        object below `prefix`.

        `prefix` is `/v1/ACCOUNT/CONTAINER/` as clients send it. None means that it may not, or that the answer depends
        on more than that.
        """
        if (self._write_max_age_s if write else self._max_age_s) <= 0:
            return None
        below = below_of(prefix)
        if below is None:
            return None
        for _ in range(_TRIES):
            try:
                grant = await (self._decide_write(token, below) if write else self._decide(token, below))
            except SwiftletError:
                # The request is refused, the container does not exist, or that is unknown; the API gives the answer.
                return None
            if grant is None or grant.valid_s > 0:
                return grant
        return None

    async def _decide_write(self, token: str, below: Path) -> Grant | None:
        api, options = self._api, self._api.options
        path = Path(below.account, below.container)
        if not token or options.rate_limits.on or not _have_room(options.limits):
            return None
        begun_s = time.monotonic()
        known = api.tokens.read(token)
        methods = ("PUT", "DELETE")
        container = await plain_access.to_write(api, known.identity, path, methods, self._write_max_age_s)
        if container is None or options.policies.coding(container.policy) is not None:
            return None
        # While a container moves, writes have to look in both policies.
        if options.policies.move_in_force(container.move) is not None:
            return None
        reads = await plain_access.admits(api, known.identity, path, "HEAD")
        limits = await limits_of(api, Path(below.account, below.container, plain_access.ANY))
        # The facts read first have become older while the others were read.
        valid_s = min(WRITE_VALID_S + begun_s - time.monotonic(), known.expires - self._now())
        xxh3_etags = options.etag_kind(container.policy) == "xxh3"
        return Grant(path, container.policy, valid_s, reads, xxh3_etags, limits)

    async def _decide(self, token: str, below: Path) -> Grant | None:
        api, valid_s = self._api, VALID_S
        assert below.container is not None
        path = Path(below.account, below.container)
        known = api.tokens.read(token) if token else None
        identity = None if known is None else known.identity
        if plain_access.by_role(identity, path):
            container = await api.containers.facts(path.account, below.container, self._max_age_s)
        else:
            container = await api.containers.facts(path.account, below.container, self._renewed_s)
            age_s = api.containers.age_s(path.account, below.container)
            if identity is not None:
                await api.accounts.metadata(path.account, self._renewed_s)
                age_s = max(age_s, api.accounts.age_s(path.account))
            valid_s = min(valid_s, FRESH_S - age_s)
        # The front answers no requests with a Referer.
        await plain_access.require(api, identity, path, ("GET",))
        if known is not None:
            # At the end: the decision took time, in which the token has become older.
            valid_s = min(valid_s, known.expires - self._now())
        visited = identity is None and api.options.static_web.enabled and site_of(container.metadata).any
        # The front knows copies alone; objects with erasure coding are written and read by Python.
        if has_versions(container) or visited or api.options.policies.coding(container.policy) is not None:
            return None
        # Of a settled move Python looks in the source for what the front has not found in the target.
        move = api.options.policies.move_in_force(container.move)
        if move is not None and move.phase is not Phase.SETTLED:
            return None
        return Grant(path, container.policy, valid_s)


def below_of(prefix: str) -> Path | None:
    """Return the path of some object below a prefix `/v1/ACCOUNT/CONTAINER/`; None when there can be none."""
    try:
        return parse_path(prefix.removeprefix("/v1") + "o")
    except SwiftletError:
        return None


def _have_room(limits: LimitsSection) -> bool:
    """Return whether what the front accepts is within the limits of objects and their metadata."""
    names, values = limits.max_meta_name_length >= _ITEM_NAME, limits.max_meta_value_length >= _ITEM_VALUE
    whole = limits.max_meta_overall_size >= _MAX_HEAD and limits.max_file_size >= SMALL_BYTES
    return names and values and whole and limits.max_meta_count >= _ITEMS
