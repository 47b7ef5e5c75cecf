"""Deleted accounts that wait for the reaper: they appear not to exist, and can't be created again yet.

Fault model: where the account's databases can't be asked, an account counts as not deleted: what is written to it
meanwhile is reaped as well.
"""

from __future__ import annotations

from swiftlet.api.context.account_cache import AccountCache
from swiftlet.api.context.container_cache import FetchContainer
from swiftlet.api.http.problems import ApiError
from swiftlet.errors import NotFound, SwiftletError
from swiftlet.expiry.reaper import MARK
from swiftlet.model import ContainerInfo
from swiftlet.names import Path


async def is_deleted(accounts: AccountCache, account: str) -> bool:
    """Return whether the account is marked as deleted."""
    try:
        return MARK in await accounts.fresh(account)
    except SwiftletError:
        return False


async def refuse_deleted(accounts: AccountCache, method: str, path: Path) -> None:
    """Refuse requests for a deleted account: 404 for it and its containers, 409 for creating it again."""
    if path.obj is not None or not await is_deleted(accounts, path.account):
        return
    if method == "PUT" and path.container is None:
        raise ApiError(409, f"account {path.account} was deleted and is still being removed; try again later")
    raise NotFound(f"account {path.account} was deleted")


def of_live_accounts(fetch: FetchContainer, accounts: AccountCache) -> FetchContainer:
    """Return a function that fetches containers by account and name, and raises NotFound in deleted accounts."""

    async def found(account: str, container: str) -> ContainerInfo:
        info = await fetch(account, container)
        if await is_deleted(accounts, account):
            raise NotFound(f"account {account} was deleted")
        return info

    return found
