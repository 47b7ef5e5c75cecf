"""Enforces quotas on everything that stores objects or creates containers: uploads, copies, manifests, forms, archives.

What counts is in `swiftlet.quota.bounds`. A write reserves its room before its first byte and returns it when it fails.
The size of an upload without Content-Length is not known: it reserves more while it flows, and is cut off with 413
where no more fits. An object counts in full while it is written, also where it replaces another one, as in OpenStack
Swift. Limits apply to everybody, including reseller admins, who can raise them.

In precise mode room is held by claims at the databases (`swiftlet.placement.claims`) and the limits hold exactly;
otherwise in the memory of this process (`swiftlet.quota.usage`).

Fault model: a write whose outcome is unknown (503, a proxy that dies) keeps its claims until they expire, since it may
have been stored. When an account can't be asked for its metadata, precise mode refuses writes (503); otherwise limits
by headers of that account do not count until it can.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import structlog
from prometheus_client import Counter

from swiftlet.api.context.core import Call, Facts, SwiftApi
from swiftlet.api.http.problems import ApiError
from swiftlet.api.http.reserved import is_reserved, main_container, versions_container
from swiftlet.api.reading.versioning import has_versions
from swiftlet.auth.identity import RESELLER_PREFIX
from swiftlet.boundaries.bodies import Piece
from swiftlet.errors import NotFound, SwiftletError, Unavailable
from swiftlet.model import Amounts, Bounds, Claim, DatabaseName, Excess, PutFooter, PutRecord
from swiftlet.names import Path
from swiftlet.quota.bounds import (
    ACCOUNT_LEVEL,
    CONTAINER_BYTES,
    Named,
    account_bounds,
    container_bounds,
    containers_bounds,
)
from swiftlet.quota.limits import Limits, Quotas
from swiftlet.timestamp import Timestamp

P = ParamSpec("P")
REFUSED = Counter("swiftlet_quota_refusals_total", "Writes refused by a quota.", ["scope", "what"])
_MAX_STEP = 64 * 1024 * 1024
"""How many bytes an upload of unknown size reserves at most beyond what has arrived."""
_PAUSES_S = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Seconds between looks whether an account has learned of an object; after them its claim expires."""
_later: set[asyncio.Task[None]] = set()
"""Tasks that check later, referenced so that they are not garbage-collected; claims of a process that ends expire by
themselves.
"""
_log = structlog.get_logger("quota")


async def stop_checking() -> None:
    """End the tasks that check later. Call it while the transports can still be used."""
    checking = [*_later]
    for task in checking:
        task.cancel()
    await asyncio.gather(*checking, return_exceptions=True)


class Incoming(Protocol):
    """The bytes of a new object, as in `swiftlet.api.writing.storing`."""

    announced: int | None

    def pieces(self) -> AsyncIterator[Piece]:
        """Yield all pieces in order."""
        ...


class QuotaExceeded(ApiError):
    """413: there is no room for this."""

    def __init__(self, scope: str, named: Named, excess: Excess, name: DatabaseName) -> None:
        """Make a body that says which limit it is, what is used, and what was asked for."""
        REFUSED.labels(scope, excess.what).inc()
        shown = None if name.container is None else main_container(name.container)
        where = f"account {name.account!r}" if shown is None else f"container {shown!r}"
        super().__init__(413, named.explain(excess, where))


@dataclass(frozen=True, slots=True)
class _Part:
    """One database in which a write reserves room."""

    scope: str
    name: DatabaseName
    named: Named
    elsewhere: int = 0
    """Bytes that count with those of this database and are in another one."""

    def refusal(self, excess: Excess) -> QuotaExceeded:
        """Return the error for the writer: with the whole limit, and all that is used of it."""
        if excess.what == "bytes":
            excess = replace(excess, most=excess.most + self.elsewhere, used=excess.used + self.elsewhere)
        return QuotaExceeded(self.scope, self.named, excess, self.name)


class Hold:
    """The room that one write reserves."""

    def __init__(
        self,
        api: SwiftApi,
        quotas: Quotas,
        parts: Sequence[_Part],
        asked: Amounts,
        row: str,
        container: DatabaseName | None = None,
    ) -> None:
        """Start without a reservation; `row` is the write's row in a listing, in `container` if it is an object."""
        self._api = api
        self._quotas = quotas
        self._parts = parts
        self._asked = asked
        self._row = row
        self._container = container
        self._id = os.urandom(16).hex()
        self._at: Timestamp | None = None
        # This covers the longest pause that a client may make, and the commit after it.
        self._life_s = round(2 * api.options.client_timeout_s + 60)
        self._renewed = time.monotonic()

    def stored(self, at: Timestamp) -> None:
        """Record that the write is done, with this timestamp."""
        self._at = at

    def metered(self, body: Incoming) -> Incoming:
        """Return the body, which ends with an error where it exceeds the room."""
        return _Metered(self, body)

    async def come(self, size: int) -> None:
        """Count so many received bytes. Raises QuotaExceeded."""
        if size > self._asked.bytes:
            await self._grow(size)
        elif time.monotonic() - self._renewed > self._life_s / 4:
            await self.take()

    async def _grow(self, size: int) -> None:
        """Reserve room for `size` bytes, and for some more if there is some."""
        ahead = min(max(size, 2 * self._asked.bytes), size + _MAX_STEP)
        for target in dict.fromkeys((ahead, size)):
            self._asked = replace(self._asked, bytes=target)
            try:
                await self.take()
            except QuotaExceeded:
                if target == size:
                    raise
            else:
                return

    async def take(self) -> None:
        """Reserve what is asked for now, everywhere or nowhere. Raises QuotaExceeded, NotFound and Unavailable."""
        claim = Claim(self._id, self._asked)
        for index, part in enumerate(self._parts):
            try:
                excess = await self._ask(part, claim)
            except BaseException:
                await self._give_back(self._parts[:index])
                raise
            if excess is not None:
                await self._give_back(self._parts[:index])
                raise part.refusal(excess)
        self._renewed = time.monotonic()

    async def _ask(self, part: _Part, claim: Claim) -> Excess | None:
        if self._quotas.precise:
            return await self._api.listings.claims.take(part.name, claim, part.named.bounds, self._life_s)
        return await self._api.usage.take(part.name, claim, part.named.bounds, self._quotas.cache_s)

    async def end(self, error: BaseException | None) -> None:
        """Return the room, or have it counted as used."""
        unknown = error is not None and (not isinstance(error, SwiftletError) or isinstance(error, Unavailable))
        if not self._quotas.precise:
            for part in self._parts:
                self._api.usage.end(part.name, self._id, stored=error is None or unknown)
        elif unknown:
            _log.info(
                "the outcome of a write is unknown; its claims on quotas expire after life_s",
                row=self._row,
                life_s=self._life_s,
            )
        elif self._at is None:
            await self._give_back(self._parts)
        else:
            await self._confirm(self._at)

    async def _confirm(self, at: Timestamp) -> None:
        claims, scopes = self._api.listings.claims, {part.scope: part.name for part in self._parts}
        if "containers" in scopes:
            await claims.confirm(scopes["containers"], self._id, self._row, at)
        if self._container is None or not scopes:
            return
        told = await claims.confirm(self._container, self._id, self._row, at, report="account" in scopes)
        if "account" in scopes and not (told and await self._counted(scopes["account"])):
            later = asyncio.create_task(self._confirm_later(scopes["account"], self._container, at))
            _later.add(later)
            later.add_done_callback(_later.discard)

    async def _counted(self, account: DatabaseName) -> bool:
        """Return whether the account has learned of the object by its container's totals, so that its claim ends."""
        await self._api.listings.claims.cancel(account, self._id)
        return True

    async def _confirm_later(self, account: DatabaseName, container: DatabaseName, at: Timestamp) -> None:
        """Confirm later: a row has yet to reach one of the container's replicas, or a report the account."""
        for pause_s in _PAUSES_S:
            await asyncio.sleep(pause_s)
            if await self._api.listings.claims.confirm(container, self._id, self._row, at, report=True):
                await self._counted(account)
                return

    async def _give_back(self, parts: Sequence[_Part]) -> None:
        for part in parts:
            if self._quotas.precise:
                await self._api.listings.claims.cancel(part.name, self._id)
            else:
                self._api.usage.end(part.name, self._id, stored=False)


class _Metered:
    """A body that reserves room as it flows."""

    def __init__(self, hold: Hold, body: Incoming) -> None:
        self._hold = hold
        self._body = body
        self.announced = body.announced

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield all pieces in order. Raises QuotaExceeded where no more fits."""
        size = 0
        async for piece in self._body.pieces():
            size += len(piece)
            await self._hold.come(size)
            yield piece


class _Written(Protocol):
    """A new object as its writer describes it."""

    call: Call
    path: Path
    body: Incoming | None


W = TypeVar("W", bound=_Written)


def within_quota(
    store: Callable[Concatenate[W, P], Awaitable[tuple[PutRecord, PutFooter]]],
) -> Callable[Concatenate[W, P], Awaitable[tuple[PutRecord, PutFooter]]]:
    """Let `store` write an object only within its quotas; all writes of objects pass through here.

    A DELETE is never refused: what it brings back was counted before.
    """

    async def stored(new: W, /, *args: P.args, **kwargs: P.kwargs) -> tuple[PutRecord, PutFooter]:
        assert new.body is not None
        if new.call.request.method == "DELETE":
            return await store(new, *args, **kwargs)
        parts = await _parts(new.call.api, new.path)
        if not parts:
            return await store(new, *args, **kwargs)
        async with _room_for_object(new.call.api, new.path, new.body.announced, parts) as hold:
            new.body = hold.metered(new.body)
            record, footer = await store(new, *args, **kwargs)
            hold.stored(record.timestamp)
        return record, footer

    return stored


@dataclass(frozen=True, slots=True)
class Limited:
    """A database in which writes of objects reserve room, and the limits there."""

    name: DatabaseName
    bounds: Bounds
    precise: bool


async def limits_of(api: Facts, path: Path) -> tuple[Limited, ...]:
    """Return what limits the writes of an object; nothing where no quota applies. Raises NotFound and Unavailable."""
    precise = api.quotas.quotas.precise
    return tuple(Limited(part.name, part.named.bounds, precise) for part in await _parts(api, path))


async def _parts(api: Facts, path: Path) -> list[_Part]:
    """Return the databases whose limits apply to an object; none without a limit on its container or account.

    Raises NotFound and Unavailable.
    """
    limits, metadata = await _level(api, api.quotas.quotas, path.account)
    parts = [
        await _part_of_container(api, limits, path),
        _Part("account", DatabaseName(path.account), account_bounds(limits, metadata)),
    ]
    return [part for part in parts if not part.named.unlimited]


async def _part_of_container(api: Facts, limits: Limits, path: Path) -> _Part:
    """Return the limits of a container, whose bytes include older versions in the hidden container.

    Each of the two has what the other one leaves. X-Container-Meta-Quota-Count does not count versions, but the links
    to them; a level's object_count applies to each of the two containers.
    """
    assert path.container is not None
    shown = main_container(path.container)
    container = await api.containers.fresh(path.account, shown)
    metadata, other = container.metadata, versions_container(shown)
    if is_reserved(path):
        metadata, other = {name: value for name, value in metadata.items() if name == CONTAINER_BYTES}, shown
    named = container_bounds(limits, metadata)
    elsewhere = 0
    if named.bounds.bytes is not None and has_versions(container):
        elsewhere = await _bytes_in(api, path.account, other)
        named = replace(named, bounds=replace(named.bounds, bytes=max(0, named.bounds.bytes - elsewhere)))
    return _Part("container", DatabaseName(path.account, path.container), named, elsewhere)


async def _bytes_in(api: Facts, account: str, container: str) -> int:
    """Return the bytes of a container; where limits need not be precise, as they were known to this process within
    `cache_seconds`.
    """
    quotas = api.quotas.quotas
    try:
        if quotas.precise:
            return (await api.containers.totals(account, container)).bytes_used
        return (await api.containers.get(account, container, quotas.cache_s)).bytes_used
    except NotFound:
        return 0


@asynccontextmanager
async def _room_for_object(api: SwiftApi, path: Path, size: int | None, parts: Sequence[_Part]) -> AsyncIterator[Hold]:
    """Reserve room for an object of `size` bytes (None: not known yet) while it is written.

    Raises QuotaExceeded and Unavailable.
    """
    asked, name = Amounts(objects=1, bytes=size or 0), DatabaseName(path.account, path.container)
    hold = Hold(api, api.quotas.quotas, parts, asked, path.obj or "", name)
    async with _held(hold):
        yield hold


@asynccontextmanager
async def room_for_container(api: SwiftApi, account: str, container: str) -> AsyncIterator[Hold]:
    """Reserve room for a container while it is created, unless it exists already. Raises QuotaExceeded and
    Unavailable.
    """
    quotas = api.quotas.quotas
    named = containers_bounds((await _level(api, quotas, account))[0])
    parts = [] if named.unlimited else [_Part("containers", DatabaseName(account), named)]
    if parts and await _exists(api, quotas, account, container):
        parts = []
    hold = Hold(api, quotas, parts, Amounts(containers=1), container)
    async with _held(hold):
        yield hold


@asynccontextmanager
async def _held(hold: Hold) -> AsyncIterator[None]:
    await hold.take()
    try:
        yield
    except BaseException as error:
        await hold.end(error)
        raise
    await hold.end(None)


async def _level(api: Facts, quotas: Quotas, account: str) -> tuple[Limits, Mapping[str, str]]:
    """Return the level's limits of an account, and its metadata, which may have limits of its own."""
    try:
        metadata = await api.accounts.fresh(account)
    except Unavailable:
        if quotas.precise:
            raise
        _log.warning(
            "an account could not be read; the limits set in its headers are not applied until it can be read",
            account=account,
        )
        metadata = {}
    return quotas.limits_of(account.removeprefix(RESELLER_PREFIX), metadata.get(ACCOUNT_LEVEL)), metadata


async def _exists(api: SwiftApi, quotas: Quotas, account: str, container: str) -> bool:
    try:
        await (api.containers.refresh if quotas.precise else api.containers.get)(account, container)
    except NotFound:
        return False
    return True
