"""Requests about claims, beside those of `swiftlet.servers.containers.container_server`.

Fault model: as there. A lost answer leaves a claim that nobody knows of, until it expires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Protocol

from aiohttp import web

from swiftlet.errors import DeviceFailed, SwiftletError
from swiftlet.listing.pool import ListingStore
from swiftlet.model import DatabaseId, DatabaseName
from swiftlet.servers.containers.claims import Claims, Finder, Report
from swiftlet.servers.shared.json_requests import Answer
from swiftlet.transport import claims_wire
from swiftlet.transport.listing_wire import checked_name
from swiftlet.transport.wire import answers_to_wire, flag, timestamp


class ReportNow(Protocol):
    """Reports the totals of a container to its account."""

    async def report_now(self, device: str, id: DatabaseId) -> bool:
        """Report within a bounded time; a report that fails is retried later."""
        ...


class ClaimRoutes:
    """Request handlers over the claims of this process's devices."""

    def __init__(
        self,
        stores: Mapping[str, ListingStore],
        reporter: ReportNow | None = None,
        finders: Mapping[str, Finder] | None = None,
    ) -> None:
        """`stores` by the devices' names on this server, and who finds rows that are in shards."""
        known = finders or {}
        self.claims = {
            device: Claims(store, _report(reporter, device), finder=known.get(device))
            for device, store in stores.items()
        }

    async def take_claims(self, request: web.Request, fields: Answer) -> Answer:
        """Answer with `answers` to `claims`, each with `excess`: null, or why the claim is refused."""
        return await _many(self._take, request, fields)

    async def confirm_claims(self, request: web.Request, fields: Answer) -> Answer:
        """Answer with `answers` to `claims`, each with `listed` and `reported`."""
        return await _many(self._confirm, request, fields)

    async def cancel_claims(self, request: web.Request, fields: Answer) -> Answer:
        """Answer with `answers` to `claims`, each empty."""
        return await _many(self._cancel, request, fields)

    async def _take(self, request: web.Request, fields: Answer) -> Answer:
        claim, bounds, life_s = claims_wire.claim_from_wire(fields)
        excess = await self._of(request).take(*_place(request), claim, bounds, life_s)
        return claims_wire.excess_to_wire(excess)

    async def _confirm(self, request: web.Request, fields: Answer) -> Answer:
        row = checked_name(fields.get("row"), "the row's name")
        id, stamp, report = claims_wire.claim_id(fields), timestamp(fields, "timestamp"), flag(fields, "report")
        partition, name = _place(request)
        return asdict(await self._of(request).confirm(partition, name, id, row, stamp, report))

    async def _cancel(self, request: web.Request, fields: Answer) -> Answer:
        await self._of(request).cancel(*_place(request), claims_wire.claim_id(fields))
        return {}

    def _of(self, request: web.Request) -> Claims:
        device = request.match_info["device"]
        if device not in self.claims:
            raise DeviceFailed(f"device {device} is not served here")
        return self.claims[device]


async def _many(
    one: Callable[[web.Request, Answer], Awaitable[Answer]], request: web.Request, fields: Answer
) -> Answer:
    """Carry out all requests of a message concurrently; an error of one of them is returned as its answer."""

    async def answer(body: Answer) -> Answer | SwiftletError:
        try:
            return await one(request, body)
        except SwiftletError as error:
            return error

    return answers_to_wire(await asyncio.gather(*map(answer, claims_wire.many_from_wire(fields))))


def _report(reporter: ReportNow | None, device: str) -> Report | None:
    return None if reporter is None else partial(reporter.report_now, device)


def _place(request: web.Request) -> tuple[int, DatabaseName]:
    account = checked_name(request.query.get("account"), "the account")
    container = None
    if request.match_info["kind"] == "containers":
        container = checked_name(request.query.get("container"), "the container")
    return int(request.match_info["partition"]), DatabaseName(account, container)
