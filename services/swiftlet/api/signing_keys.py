"""The keys that owners set for temporary URLs and forms: two per account and two per container, for rotation.

Both come from what the proxy remembers, so a changed key counts everywhere within `container_info_ttl_s`.
"""

from __future__ import annotations

from swiftlet.api.access import SignedAccess
from swiftlet.api.core import SwiftApi
from swiftlet.api.privileged import ACCOUNT_KEYS, CONTAINER_KEYS
from swiftlet.errors import NotFound


async def keys_for(api: SwiftApi, account: str, container: str) -> dict[str, SignedAccess]:
    """What each key gives access to: an account's key to all of it, a container's to that container."""
    keys: dict[str, SignedAccess] = {}
    try:
        of_container = (await api.containers.get(account, container)).metadata
    except NotFound:
        of_container = {}
    keys |= {of_container[name]: SignedAccess(account, container) for name in CONTAINER_KEYS if of_container.get(name)}
    of_account = await api.accounts.metadata(account)
    return keys | {of_account[name]: SignedAccess(account) for name in ACCOUNT_KEYS if of_account.get(name)}
