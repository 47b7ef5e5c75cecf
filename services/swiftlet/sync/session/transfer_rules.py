"""Rules for entries that differ and are not objects.

Sessions know the rule for objects: the newer version goes to the side that has the older one. Whatever else is compared
by the same messages defines what goes where by these rules (`swiftlet.sync.databases.transfer_rules`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from swiftlet.model import Entry
from swiftlet.sync.session.compare import Push


class TransferRules(Protocol):
    """Pure decisions about two devices' entries of the same suffixes."""

    def there(self, mine: Iterable[Entry], theirs: Iterable[Entry], pull: bool) -> list[Push]:
        """Return what to bring to the peer; with `pull` this includes what the peer has to be asked for."""
        ...

    def here(self, theirs: Iterable[Entry], mine: Iterable[Entry]) -> list[Push]:
        """Return what to bring from the peer."""
        ...

    def is_due(self, push: Push, now_s: float, forgotten_before_s: float) -> bool:
        """Return whether to bring an entry now."""
        ...

    def is_returned(self, mine: Entry, theirs: Entry | None, moved: bool, forgotten_before_s: float) -> bool:
        """Return whether a primary no longer needs a handoff's copy; `moved` tells that it has just taken it."""
        ...
