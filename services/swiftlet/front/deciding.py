"""Grants: who may read and write in which container for the next moment, as the API's own functions decide."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from swiftlet.api.context.core import SwiftApi
from swiftlet.api.context.fresh_cache import FRESH_S
from swiftlet.api.reading.static_web import site_of
from swiftlet.api.reading.versioning import has_versions
from swiftlet.api.writing import plain_access
from swiftlet.api.writing.expiry_changes import has_expiring
from swiftlet.api.writing.quota_checks import Limited, limits_of
from swiftlet.auth.identity import Identity
from swiftlet.errors import SwiftletError
from swiftlet.model import ContainerInfo
from swiftlet.names import Path, parse_path
from swiftlet.policy_moves import Phase
from swiftlet.quota import Quotas
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
class Grounds:
    """What a grant rests on, apart from settings that stay as they are while the process runs."""

    identity: Identity
    """Whose token it is. That the token is valid is looked up each time."""
    container: ContainerInfo
    account: Mapping[str, str] | None
    """The account's metadata; None where the user's role alone decides."""
    quotas: Quotas
    policy: tuple[object, ...]
    """The settings of the container's policy, and of its move to another one: either may change."""

    def are_those(self, before: Grounds) -> bool:
        """Return whether a decision on these grounds would be the same as on others: totals do not count."""
        return (
            self.container.metadata == before.container.metadata
            and self.container.policy == before.container.policy
            and self.account == before.account
            and self.identity == before.identity
            and self.quotas is before.quotas
            and self.policy == before.policy
        )


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
    expiring: bool = False
    """Of a grant to write: whether objects of the container may expire. What replaces or deletes such an object takes
    its task off the expirer's queue, which only Python does.
    """
    limits: tuple[Limited, ...] = ()
    """What limits the objects that are written."""
    grounds: Grounds | None = field(default=None, compare=False)
    """The facts that the decision rests on; None where they can't be told without asking another service."""

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

    def again(self, token: str, write: bool, grant: Grant) -> float | None:
        """Return for how many more seconds a grant holds whose grounds are known to be what they were; None where it
        has to be decided anew. Nobody is asked.
        """
        if grant.grounds is None:
            return None
        try:
            known = self._api.tokens.read(token)
        except SwiftletError:
            return None
        grounds = self._grounds(known.identity, grant.path, write)
        if grounds is None or not grounds.are_those(grant.grounds):
            return None
        valid_s = min(WRITE_VALID_S if write else VALID_S, known.expires - self._now())
        return valid_s if valid_s > 0 else None

    async def refresh_account(self, account: str, max_age_s: float) -> None:
        """Request an account's metadata if they are older than this, so that `again` knows them for a while."""
        with contextlib.suppress(SwiftletError):  # Who decides anew says so.
            await self._api.accounts.metadata(account, max_age_s)

    def _grounds(self, identity: Identity, path: Path, write: bool) -> Grounds | None:
        """Return on what a decision rests now, as far as it is known well enough for a grant."""
        api, account = self._api, None
        assert path.container is not None
        container = api.containers.settled(
            path.account, path.container, self._write_max_age_s if write else self._max_age_s
        )
        if write:
            account = api.accounts.recent(path.account, self._write_max_age_s)
        elif not plain_access.by_role(identity, path):
            return None
        if container is None or (write and account is None):
            return None
        options, policy = api.options, container.policy
        move = options.policies.move_in_force(container.move)
        quorum = api.objects.by_policy.quorums(policy)
        of_policy = options.policies.coding(policy), options.etag_kind(policy), quorum, move
        return Grounds(identity, container, account, api.quotas.quotas, of_policy)

    def _rested_on(self, before: Grounds | None, identity: Identity, path: Path, write: bool) -> Grounds | None:
        """Return the grounds of a decision during which nothing that is cached was replaced."""
        now = None if before is None else self._grounds(identity, path, write)
        if before is None or now is None:
            return None
        is_same = now.container is before.container and now.account is before.account and now.are_those(before)
        return now if is_same else None

    async def _decide_write(self, token: str, below: Path) -> Grant | None:
        api, options = self._api, self._api.options
        path = Path(below.account, below.container)
        if not token or options.rate_limits.on or not _have_room(options.limits):
            return None
        begun_s = time.monotonic()
        known = api.tokens.read(token)
        before = self._grounds(known.identity, path, write=True)
        methods = ("PUT", "DELETE")
        container = await plain_access.to_write(
            api, known.identity, path, methods, self._write_max_age_s, expiring=True
        )
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
        grounds = self._rested_on(before, known.identity, path, write=True)
        expiring = has_expiring(container)
        return Grant(path, container.policy, valid_s, reads, xxh3_etags, expiring, limits, grounds)

    async def _decide(self, token: str, below: Path) -> Grant | None:
        api, valid_s = self._api, VALID_S
        assert below.container is not None
        path = Path(below.account, below.container)
        known = api.tokens.read(token) if token else None
        identity = None if known is None else known.identity
        before = None if identity is None else self._grounds(identity, path, write=False)
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
        if has_versions(container) or visited:
            return None
        # Of a settled move Python looks in the source for what the front has not found in the target.
        move = api.options.policies.move_in_force(container.move)
        if move is not None and move.phase is not Phase.SETTLED:
            return None
        grounds = None if identity is None else self._rested_on(before, identity, path, write=False)
        return Grant(path, container.policy, valid_s, grounds=grounds)


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
