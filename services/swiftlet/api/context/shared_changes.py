"""Counters of changes in memory that all processes of a proxy share.

A process that changes an account or a container increments its counter before it answers the request. A cached entry is
stored with the value that the counter had before the entry was requested, and is invalid once the counter has another
value; so is a grant of the native front's. A check costs one read of memory, and no process is notified.

Names share counters by their hashes, so a change of one also invalidates another. Fault model: a process that dies
between a change and its count has not answered it either; other processes learn of it as other proxies do.
"""

from __future__ import annotations

from collections.abc import Callable

from swiftlet_native import Changes

SLOTS = 1 << 16
"""The number of counters, of eight bytes each."""
_GRANTS = "grants"


class SharedChanges:
    """The counters of a process and of those that it forks."""

    def __init__(self, slots: int = SLOTS) -> None:
        """Begin without changes. Raises OSError when the system has no memory left."""
        self.counters = Changes(slots)
        self._slots = slots
        self.follower: Callable[[str, str], None] | None = None
        """Called, in this process, with each account that it changes ("" for the container), and each container."""

    def _slot(self, *names: str) -> int:
        # Forked processes hash names alike.
        return hash(names) % self._slots

    def of_account(self, account: str) -> int:
        """Return the counter of an account's own metadata."""
        return self.counters.seen(self._slot(account))

    def of_container(self, account: str, container: str) -> int:
        """Return the counter of a container."""
        return self.counters.seen(self._slot(account, container))

    def of_grants(self, account: str) -> tuple[int, int]:
        """Return the counter of all changes in an account, of itself and of its containers, and its value."""
        slot = self._slot(_GRANTS, account, "")
        return slot, self.counters.seen(slot)

    def account_changed(self, account: str) -> None:
        """Count a change of an account's own metadata."""
        self.counters.tell(self._slot(account))
        self.counters.tell(self.of_grants(account)[0])
        if self.follower is not None:
            self.follower(account, "")

    def container_changed(self, account: str, container: str) -> None:
        """Count a change of a container."""
        self.counters.tell(self._slot(account, container))
        self.counters.tell(self.of_grants(account)[0])
        if self.follower is not None:
            self.follower(account, container)
