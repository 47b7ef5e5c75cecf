"""Rules for entries that differ, where these are not the rules for objects.

Sessions know objects: the newer version goes to who has the older one. Something else that is compared by the same
messages says here what goes where (`swiftlet.sync.databases.transfer_rules`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from swiftlet.model import Entry
from swiftlet.sync.session.compare import Push


class TransferRules(Protocol):
    """Pure decisions about two devices' entries of the same suffixes."""

    def there(self, mine: Iterable[Entry], theirs: Iterable[Entry], pull: bool) -> list[Push]:
        """Return what to bring to the peer; with `pull`, what is to come from there is requested as well."""
        ...

    def here(self, theirs: Iterable[Entry], mine: Iterable[Entry]) -> list[Push]:
        """Return what to bring from the peer."""
        ...

    def is_due(self, push: Push, now_s: float, forgotten_before_s: float) -> bool:
        """Whether to bring it now."""
        ...

    def is_returned(self, mine: Entry, theirs: Entry | None, moved: bool, forgotten_before_s: float) -> bool:
        """Whether a handoff's copy is no longer needed for a primary's sake; `moved`: it took it just now."""
        ...
