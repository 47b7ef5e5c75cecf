"""What one process of a proxy has changed, for all of them: counters in memory that they share.

Whoever changes an account or a container counts that before the change is answered. What any of the processes
remembers of it was noted with the counter as it stood before it was asked for, and counts no longer once the counter
stands elsewhere; so does a grant of the native front's. A look costs one read of memory, and nobody is told anything.

Names share counters by their hashes; then the change of one has the other asked for once more. Fault model: a process
that dies between a change and its count has not answered it either; other processes learn of it as other proxies do.
"""

from __future__ import annotations

from swiftlet_native import Changes

SLOTS = 1 << 16
"""Counters, of eight bytes each."""
_GRANTS = "grants"


class SharedChanges:
    """The counters of a process and those that it forks."""

    def __init__(self, slots: int = SLOTS) -> None:
        """Nothing has changed; OSError when the system has no memory left."""
        self.counters = Changes(slots)
        self._slots = slots

    def _slot(self, *names: str) -> int:
        # Processes that were forked hash alike.
        return hash(names) % self._slots

    def of_account(self, account: str) -> int:
        """Return the counter of an account's own metadata."""
        return self.counters.seen(self._slot(account))

    def of_container(self, account: str, container: str) -> int:
        """Return the counter of a container."""
        return self.counters.seen(self._slot(account, container))

    def of_grants(self, account: str) -> tuple[int, int]:
        """The counter of all changes in an account, of itself and of its containers, and where it stands."""
        slot = self._slot(_GRANTS, account, "")
        return slot, self.counters.seen(slot)

    def account_changed(self, account: str) -> None:
        """Count a change of an account's own metadata."""
        self.counters.tell(self._slot(account))
        self.counters.tell(self.of_grants(account)[0])

    def container_changed(self, account: str, container: str) -> None:
        """Count a change of a container."""
        self.counters.tell(self._slot(account, container))
        self.counters.tell(self.of_grants(account)[0])
