"""The keys that owners set for temporary URLs and forms: two per account and two per container, for rotation.

A change of a key counts at once in all processes of a proxy, and within a second in other proxies.
"""

from __future__ import annotations

from collections.abc import Collection

from swiftlet.api.context.access import SignedAccess
from swiftlet.api.context.core import SwiftApi
from swiftlet.api.context.privileged import ACCOUNT_KEYS, CONTAINER_KEYS
from swiftlet.auth.signatures import Signature
from swiftlet.errors import NotFound


async def access_by(
    api: SwiftApi, account: str, container: str, signature: Signature, messages: Collection[str]
) -> SignedAccess | None:
    """Return the rights of the key that has signed one of the messages; None when no key has."""
    keys = await _keys_for(api, account, container)
    key = signature.first_fitting(keys, messages)
    return None if key is None else keys[key]


async def _keys_for(api: SwiftApi, account: str, container: str) -> dict[str, SignedAccess]:
    """Return the access that each key gives: an account's key to all of it, a container's to that container."""
    keys: dict[str, SignedAccess] = {}
    try:
        of_container = (await api.containers.fresh(account, container)).metadata
    except NotFound:
        of_container = {}
    keys |= {of_container[name]: SignedAccess(account, container) for name in CONTAINER_KEYS if of_container.get(name)}
    of_account = await api.accounts.fresh(account)
    return keys | {of_account[name]: SignedAccess(account) for name in ACCOUNT_KEYS if of_account.get(name)}
