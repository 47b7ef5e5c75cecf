"""Counts what still uses the storage policies that are being retired, and refuses new containers for them.

While a policy is deprecated this server walks over its databases again and again. Numbers for administrators count a
container where this server has its first replica, so that the sum over all servers is right. The proof that nothing is
left counts every copy on its devices, also of deleted containers and on handoffs.

A deprecated policy is refused here as well as by the proxies, some time after it was announced, when proxies know it
too. `emptySince` is the end of the first of an unbroken series of walks that began after that and found no copy. A
container may move between servers while they walk; so the policy is unused when each server has walked once more since
all of them were empty.

Fault model: a database that can't be read may be one of the policy's, and so may be all of a device that can't be
listed: then nothing counts as empty. After a start this server refuses and proves anew, as it remembers neither.
Containers of hidden accounts and the databases of shards have rows only, and no objects of their own. A container that
moves between policies counts for both until its move is settled, for its objects may be in either.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from swiftlet.errors import NotFound, SwiftletError
from swiftlet.listing.head import Head
from swiftlet.listing.pool import ListingStore
from swiftlet.listing.shards import is_shard
from swiftlet.model import AccountInfo, DatabaseId, DatabaseKind
from swiftlet.servers.containers.account_tally import HIDDEN, PAUSE_S
from swiftlet.settings.sections import PolicySection
from swiftlet.timestamp import ZERO
from swiftlet.web.logs import get_logger

LOOK_S = 1.0
"""Seconds between checks of which policies are deprecated."""
NAMED = 3
"""The number of accounts that are named for each policy."""
_LONGEST_NAME = 64
"""The largest length of an account's name in the report, which has room for names of many policies."""

IsFirst = Callable[[str, DatabaseId], bool]
"""Returns whether the device with this name has the first replica of a database."""

_log = get_logger("policy_tally")


@dataclass(slots=True)
class Use:
    """What was found about one policy."""

    containers: int = 0
    objects: int = 0
    accounts: int = 0
    copies: int = 0
    largest: dict[str, int] = field(default_factory=dict)
    """The number of containers by account, for the accounts that have most."""

    def add_account(self, account: str, containers: int) -> None:
        """Count containers of an account that have the policy."""
        self.accounts += 1
        self.largest[account] = containers
        if len(self.largest) > NAMED:
            del self.largest[self.ranked[-1]]

    @property
    def ranked(self) -> list[str]:
        """Return these accounts, the largest first."""
        return sorted(self.largest, key=lambda account: (-self.largest[account], account))


class PolicyTally:
    """Counts what uses deprecated policies on this server's devices."""

    def __init__(
        self,
        stores: Mapping[str, ListingStore],
        policies: Callable[[], Iterable[PolicySection]],
        is_first: IsFirst,
        interval_s: float,
        grace_s: float,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`stores` by the devices' names; `policies` returns the current ones.

        Walks begin `interval_s` seconds after each other; a policy is refused `grace_s` after it was first seen to be
        deprecated. `now_s` returns seconds since the epoch.
        """
        self._stores = stores
        self._policies = policies
        self._is_first = is_first
        self._interval_s = interval_s
        self._grace_s = grace_s
        self._now_s = now_s
        self._seen_s: dict[int, float] = {}
        self._empty_since_s: dict[int, float] = {}
        self._found: dict[int, Use] = {}
        self._counted_at_s: float | None = None

    async def run(self) -> None:
        """Check policies and walk over databases, until cancelled."""
        due_s, known = 0.0, frozenset[int]()
        while True:
            refused = self.look()
            if self._seen_s and (time.monotonic() >= due_s or refused != known):
                due_s, known = time.monotonic() + self._interval_s, refused
                await self.walk()
            await asyncio.sleep(LOOK_S)

    def look(self) -> frozenset[int]:
        """Check which policies are deprecated; return those that are refused from now on."""
        now_s = self._now_s()
        policies = list(self._policies())
        deprecated = {policy.index for policy in policies if policy.deprecated}
        self._seen_s = {index: self._seen_s.get(index, now_s) for index in sorted(deprecated)}
        for found in (self._empty_since_s, self._found):
            for index in found.keys() - deprecated:
                del found[index]
        refused = frozenset(index for index, seen_s in self._seen_s.items() if now_s >= seen_s + self._grace_s)
        for store in self._stores.values():
            store.refuse_policies(refused)
            store.know_policies(frozenset(policy.index for policy in policies))
        return refused

    async def walk(self) -> None:
        """Read all databases; from then on report what uses the deprecated policies."""
        began_s, refused = self._now_s(), self.look()
        found = {index: Use() for index in self._seen_s}
        unread = 0
        for device, store in self._stores.items():
            try:
                unread += await self._walk_device(device, store, found)
            except SwiftletError as error:
                unread += 1
                _log.info(
                    "the use of storage policies on a device could not be counted", device=device, error=str(error)
                )
        for index, use in found.items():
            if use.copies or unread or index not in refused:
                self._empty_since_s.pop(index, None)
            else:
                self._empty_since_s.setdefault(index, self._now_s())
        self._found, self._counted_at_s = found, began_s

    async def _walk_device(self, device: str, store: ListingStore, found: Mapping[int, Use]) -> int:
        """Count the databases of a device; return how many could not be read."""
        unread = 0
        async for id in _databases(store):
            first = self._is_first(device, id)
            try:
                if id.kind is DatabaseKind.CONTAINER:
                    _count_container(found, await store.read(id, lambda database: database.head), first)
                elif first:
                    _count_account(found, await store.read(id, lambda database: database.info()))
            except NotFound:
                continue
            except SwiftletError as error:
                unread += id.kind is DatabaseKind.CONTAINER
                _log.info("a database could not be counted", database=str(id), error=str(error))
        return unread

    def report(self) -> Mapping[str, object] | None:
        """Return when the last walk began and what it found, by policy index; None before the first walk."""
        if self._counted_at_s is None:
            return None
        return {"countedAt": self._counted_at_s, "used": {str(index): self._fields(index) for index in self._found}}

    def _fields(self, index: int) -> dict[str, object]:
        use = self._found[index]
        return {
            "containers": use.containers,
            "objects": use.objects,
            "accounts": use.accounts,
            "largest": [name[:_LONGEST_NAME] for name in use.ranked],
            "copies": use.copies,
            "emptySince": self._empty_since_s.get(index),
        }


async def _databases(store: ListingStore) -> AsyncIterator[DatabaseId]:
    for kind in DatabaseKind:
        for partition in await store.partitions(kind):
            for id in await store.databases(kind, partition):
                await asyncio.sleep(PAUSE_S)
                yield id


def _count_container(found: Mapping[int, Use], head: Head, first: bool) -> None:
    for policy in head.policies_used & found.keys() if is_counted(head) else ():
        use = found[policy]
        use.copies += 1
        if first and head.exists:
            use.containers += 1
            use.objects += head.whole.objects


def is_counted(head: Head) -> bool:
    """Return whether a container's database stands for objects of its policy, now or until its deletion."""
    return not (head.name.account.startswith(HIDDEN) or is_shard(head.name) or head.put_timestamp == ZERO)


def _count_account(found: Mapping[int, Use], info: AccountInfo) -> None:
    if not info.account.startswith(HIDDEN):
        for index, amounts in info.policies.items():
            if index in found and amounts.containers:
                found[index].add_account(info.account, amounts.containers)
