"""Accounts: HEAD, GET (containers), POST (metadata), and for reseller admins PUT and DELETE.

An account is created by its first container or metadata; an account without any write appears empty.
"""

from __future__ import annotations

from dataclasses import astuple, replace
from functools import partial

from aiohttp import web

from swiftlet.api.context.core import Call, SwiftApi
from swiftlet.api.context.privileged import account_acl, unprivileged
from swiftlet.api.context.quota_headers import account_quota
from swiftlet.api.http.concurrency import ROW_BYTES, beside
from swiftlet.api.http.finishing import accepted
from swiftlet.api.http.listings import choose_type, describe, parse_listing, render
from swiftlet.api.http.metadata import ACCOUNT_META, bounds_of, collect, refuse_unsupported
from swiftlet.api.http.reserved import BEHIND_ALL, versions_container
from swiftlet.errors import NotEmpty, NotFound
from swiftlet.expiry.reaper import ReaperQueue
from swiftlet.model import AccountInfo, ContainerRow, ListingQuery, Subdir
from swiftlet.timestamp import ZERO

POLICY_TOTALS = (
    "X-Account-Storage-Policy-name-Container-Count",
    "X-Account-Storage-Policy-name-Object-Count",
    "X-Account-Storage-Policy-name-Bytes-Used",
)
"""Headers, with the policy's name in them, for the fields of `Amounts` in order."""


def _nothing_yet(account: str) -> AccountInfo:
    return AccountInfo(account, ZERO, ZERO, 0, 0, 0, {})


def account_headers(call: Call, info: AccountInfo) -> dict[str, str]:
    """Return totals and metadata as response headers."""
    headers = {
        "X-Account-Container-Count": str(info.container_count),
        "X-Account-Object-Count": str(info.object_count),
        "X-Account-Bytes-Used": str(info.bytes_used),
        "X-Timestamp": info.created.normal,
        "X-Put-Timestamp": info.put_timestamp.normal,
        "Accept-Ranges": "bytes",
    }
    return headers | _by_policy(call, info) | unprivileged(info.metadata, call.owner)


def _by_policy(call: Call, info: AccountInfo) -> dict[str, str]:
    """Yield the totals of each known policy that has containers; together they are the account's."""
    headers: dict[str, str] = {}
    for index, amounts in info.policies.items():
        policy = call.api.options.policies.at(index)
        if policy is not None:
            for name, amount in zip(POLICY_TOTALS, astuple(amounts), strict=True):
                headers[name.replace("-name-", f"-{policy.name}-")] = str(amount)
    return headers


def new_metadata(call: Call) -> dict[str, str]:
    """Return what a PUT or POST changes of an account's metadata, with its ACL; "" removes an item."""
    items = collect(call.request.headers, ACCOUNT_META, call.api.options.limits)
    return unprivileged(items | account_acl(call.request.headers), call.owner) | account_quota(call, items)


async def head(call: Call) -> web.Response:
    """HEAD /v1/{account}: totals and metadata, 204."""
    try:
        info = await call.api.listings.account_info(call.path.account)
    except NotFound:
        info = _nothing_yet(call.path.account)
    media_type = choose_type(call.query, call.request.headers.get("Accept"))
    return web.Response(status=204, headers=account_headers(call, info) | describe(call.query, media_type))


async def get(call: Call) -> web.Response:
    """GET /v1/{account}: a page of containers."""
    query = parse_listing(call.query, call.api.options.limits.account_listing_limit)
    media_type = choose_type(call.query, call.request.headers.get("Accept"))
    info, rows = await _page(call, query)
    headers = account_headers(call, info) | describe(call.query, media_type)
    names = partial(_policy_name, call)
    return await beside(len(rows) * ROW_BYTES, render, rows, media_type, "account", call.path.account, headers, names)


def _policy_name(call: Call, index: int) -> str | None:
    policy = call.api.options.policies.at(index)
    return None if policy is None else policy.name


async def _page(call: Call, query: ListingQuery) -> tuple[AccountInfo, list[ContainerRow | Subdir]]:
    try:
        return await _visible(call.api, call.path.account, query)
    except NotFound:
        return _nothing_yet(call.path.account), []


async def post(call: Call) -> web.Response:
    """POST /v1/{account}: merge metadata, 204."""
    refuse_unsupported(call.request.headers)
    items, bounds = new_metadata(call), bounds_of(ACCOUNT_META, call.api.options.limits)
    try:
        await call.api.listings.post_account(call.path.account, call.api.clock.next(), items, bounds)
    except NotFound:
        await call.stamped(lambda timestamp: call.api.listings.put_account(call.path.account, timestamp, items, bounds))
    finally:
        # A change that too few replicas took counts too: some have it.
        call.api.accounts.forget(call.path.account)
    return web.Response(status=204)


async def put(call: Call) -> web.Response:
    """PUT /v1/{account}: create (201) or update (202)."""
    refuse_unsupported(call.request.headers)
    account, items = call.path.account, new_metadata(call)
    bounds = bounds_of(ACCOUNT_META, call.api.options.limits)
    try:
        created = await call.stamped(lambda timestamp: call.api.listings.put_account(account, timestamp, items, bounds))
    finally:
        call.api.accounts.forget(call.path.account)
    return web.Response(status=201) if created else accepted()


async def delete(call: Call) -> web.Response:
    """DELETE /v1/{account}: 204; what it holds is left to the reaper, and until then it can't be made again."""
    try:
        await call.stamped(lambda timestamp: call.api.listings.delete_account(call.path.account, timestamp))
    except NotEmpty:
        await ReaperQueue(call.api.listings, call.api.clock.next).delete(call.path.account)
    finally:
        call.api.accounts.forget(call.path.account)
    return web.Response(status=204)


async def _visible(api: SwiftApi, account: str, query: ListingQuery) -> tuple[AccountInfo, list[ContainerRow | Subdir]]:
    """Return one page of an account's listing as its clients see it. Raises NotFound and Unavailable.

    Hidden containers are left out, and their bytes are added to those of their owners.
    """
    info, rows = await api.listings.list_containers(account, _without_hidden(query))
    names = [row.name for row in rows if isinstance(row, ContainerRow)]
    if not names:
        return info, list(rows)
    low, high = versions_container(min(names)), versions_container(max(names))
    hidden = ListingQuery(limit=query.limit + 1, marker=low, end_marker=high + "\0")
    _, versions = await api.listings.list_containers(account, hidden)
    first = ListingQuery(limit=1, prefix=low)
    _, lowest = await api.listings.list_containers(account, first)
    sizes = {row.name: row.bytes_used for row in [*lowest, *versions] if isinstance(row, ContainerRow)}
    return info, [
        replace(row, bytes_used=row.bytes_used + sizes.get(versions_container(row.name), 0))
        if isinstance(row, ContainerRow)
        else row
        for row in rows
    ]


def _without_hidden(query: ListingQuery) -> ListingQuery:
    """Return the query with its lower end after all hidden names."""
    if query.reverse:
        return replace(query, end_marker=max(query.end_marker, BEHIND_ALL))
    return replace(query, marker=max(query.marker, BEHIND_ALL))
