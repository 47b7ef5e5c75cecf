"""Descriptions of one device's containers, as of their last commit, which answer without opening a file.

Proxies ask for the description of each container in use, and each change of totals is reported to an account, but open
files are few and expensive where containers are many. Invariant: a description is that of the last commit that was told
of, so who was told that a write succeeded sees it. What is read from a database is kept only if nothing was committed
meanwhile. Memory: some kilobytes for each, of `MAX_DESCRIPTIONS` at most.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from swiftlet.listing.head import Head
from swiftlet.model import ContainerInfo, ContainerRow, DatabaseId

MAX_DESCRIPTIONS = 10_000
"""Descriptions of containers that a device keeps in memory; the least recently used are forgotten."""


@dataclass(frozen=True, slots=True)
class Description:
    """A container as its database described it after a commit, without its rows."""

    head: Head
    info: ContainerInfo | None
    """None where the container does not exist."""

    def after_report(self, row: ContainerRow) -> Description:
        """Return it as it is once the account was told `row`."""
        return replace(self, head=self.head.after_report(row))


class Descriptions:
    """Descriptions of containers by their databases."""

    def __init__(self, most: int = MAX_DESCRIPTIONS) -> None:
        """Keep at most so many."""
        self._most = most
        self._known: OrderedDict[DatabaseId, Description] = OrderedDict()

    def get(self, id: DatabaseId) -> Description | None:
        """Return the description of a container, None where it is not known."""
        known = self._known.get(id)
        if known is not None:
            self._known.move_to_end(id)
        return known

    def put(self, id: DatabaseId, description: Description) -> None:
        """Record what was committed, or read while nothing was committed."""
        self._known[id] = description
        self._known.move_to_end(id)
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def drop(self, id: DatabaseId) -> None:
        """Forget a database that is gone, or of which nothing is known for certain."""
        self._known.pop(id, None)
