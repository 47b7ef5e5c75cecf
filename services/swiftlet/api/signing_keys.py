"""The keys that owners set for temporary URLs and forms: two per account and two per container, for rotation.

Both come from what the proxy remembers: a new key counts at once, one that was taken away no longer than for
`container_info_ttl_s`.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from swiftlet.api.access import FRESH_S, SignedAccess
from swiftlet.api.core import SwiftApi
from swiftlet.api.privileged import ACCOUNT_KEYS, CONTAINER_KEYS
from swiftlet.auth.signatures import Signature
from swiftlet.errors import NotFound


async def access_by(
    api: SwiftApi, account: str, container: str, signature: Signature, messages: Collection[str]
) -> SignedAccess | None:
    """The rights of who signed one of the messages; None when no key did."""
    for max_age_s in (math.inf, FRESH_S):
        keys = await _keys_for(api, account, container, max_age_s)
        key = signature.first_fitting(keys, messages)
        if key is not None:
            return keys[key]
    return None


async def _keys_for(api: SwiftApi, account: str, container: str, max_age_s: float) -> dict[str, SignedAccess]:
    """What each key gives access to: an account's key to all of it, a container's to that container."""
    keys: dict[str, SignedAccess] = {}
    try:
        of_container = (await api.containers.get(account, container, max_age_s)).metadata
    except NotFound:
        of_container = {}
    keys |= {of_container[name]: SignedAccess(account, container) for name in CONTAINER_KEYS if of_container.get(name)}
    of_account = await api.accounts.metadata(account, max_age_s)
    return keys | {of_account[name]: SignedAccess(account) for name in ACCOUNT_KEYS if of_account.get(name)}
