"""Accounts that were deleted and wait for the reaper: as if they were not there, and not to be made again yet.

Fault model: where the account's databases can't be asked, an account counts as not deleted: what is written to it
meanwhile is reaped all the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from swiftlet.api.context.account_cache import AccountCache
from swiftlet.api.http.problems import ApiError
from swiftlet.errors import NotFound, SwiftletError
from swiftlet.expiry.reaper import MARK
from swiftlet.model import ContainerInfo
from swiftlet.names import Path


async def is_deleted(accounts: AccountCache, account: str) -> bool:
    """Whether it is marked."""
    try:
        return MARK in await accounts.fresh(account)
    except SwiftletError:
        return False


async def refuse_deleted(accounts: AccountCache, method: str, path: Path) -> None:
    """404 for an account that was deleted and its containers, 409 for making it again."""
    if path.obj is not None or not await is_deleted(accounts, path.account):
        return
    if method == "PUT" and path.container is None:
        raise ApiError(409, f"account {path.account} was deleted and is still being removed; try again later")
    raise NotFound(f"account {path.account} was deleted")


def of_live_accounts(
    fetch: Callable[[str, str], Awaitable[ContainerInfo]], accounts: AccountCache
) -> Callable[[str, str], Awaitable[ContainerInfo]]:
    """Containers by account and name; NotFound in accounts that were deleted."""

    async def found(account: str, container: str) -> ContainerInfo:
        info = await fetch(account, container)
        if await is_deleted(accounts, account):
            raise NotFound(f"account {account} was deleted")
        return info

    return found
