"""The containers of an account as its clients see them: without hidden ones, whose bytes count with their owners'."""

from __future__ import annotations

from dataclasses import replace

from swiftlet.api.core import SwiftApi
from swiftlet.api.reserved import BEHIND_ALL, versions_container
from swiftlet.model import AccountInfo, ContainerRow, ListingQuery, Subdir


async def visible_containers(
    api: SwiftApi, account: str, query: ListingQuery
) -> tuple[AccountInfo, list[ContainerRow | Subdir]]:
    """One page of an account's listing; NotFound, Unavailable."""
    info, rows = await api.listings.list_containers(account, without_hidden(query))
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


def without_hidden(query: ListingQuery) -> ListingQuery:
    """The query with its lower end behind all hidden names."""
    if query.reverse:
        return replace(query, end_marker=max(query.end_marker, BEHIND_ALL))
    return replace(query, marker=max(query.marker, BEHIND_ALL))
