"""The transfer rules for two replicas of a database that differ: neither is newer, and both get the rows of both.

So a database that differs is exchanged, in both directions at once. In modes that pull it counts as lacking here,
because nothing shows from outside which rows the peer has besides. A database that the peer lacks is brought there.

A handoff's copy is returned when a primary has the same fingerprint, or has just taken every row of it. The second is
needed for a database that is being written to: its primaries change with each write. A copy is dropped only with the
fingerprint that was returned, so one that has changed since stays.
"""

from __future__ import annotations

from collections.abc import Iterable

from swiftlet.model import Entry
from swiftlet.sync.session.compare import Need, Push


class DatabaseTransferRules:
    """Behaves as `swiftlet.sync.session.transfer_rules.TransferRules` requires."""

    def there(self, mine: Iterable[Entry], theirs: Iterable[Entry], pull: bool) -> list[Push]:
        """Return what the peer lacks, and what differs unless that is fetched."""
        known = {entry.digest: entry for entry in theirs}
        return [
            Push(entry, Need.ROWS, entry.digest not in known)
            for entry in mine
            if entry.digest not in known or (not pull and known[entry.digest] != entry)
        ]

    def here(self, theirs: Iterable[Entry], mine: Iterable[Entry]) -> list[Push]:
        """Return what this side lacks, and what differs."""
        known = {entry.digest: entry for entry in mine}
        return [
            Push(entry, Need.ROWS, entry.digest not in known) for entry in theirs if known.get(entry.digest) != entry
        ]

    def is_due(self, push: Push, now_s: float, forgotten_before_s: float) -> bool:
        """Return True: whether a database has to wait is decided by `swiftlet.sync.databases.patience`, which knows
        more.
        """
        return True

    def is_returned(self, mine: Entry, theirs: Entry | None, moved: bool, forgotten_before_s: float) -> bool:
        """Return whether a primary has shown that it has all that was read here."""
        return moved or mine == theirs
