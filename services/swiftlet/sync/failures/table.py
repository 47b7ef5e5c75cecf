"""The failure table of one observer: node -> (n_exception, t_exception), as in source 1. Pure: times are given.

A node whose exceptions have reached `error_suppression_limit` is suppressed until `error_suppression_interval` has
passed since the last one; then its count begins anew, as it does with every success. Exceptions further apart than
the interval never add up. Times are seconds of one clock of the caller's that does not go back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

MAX_NODES = 4096
"""The largest number of nodes in a table; beyond it the one that was updated longest ago is forgotten."""
MAX_EXCEPTIONS = 1_000_000
"""The number of exceptions of a node at which counting stops."""


@dataclass(frozen=True, slots=True)
class Exceptions:
    """A row of the table: the number of exceptions since the last success, and the time of the last one."""

    n_exception: int
    t_exception: float


class FailureTable:
    """The exceptions that one observer has had with nodes."""

    def __init__(self, limit: int = 10, interval_s: float = 60.0, max_nodes: int = MAX_NODES) -> None:
        """`limit` is the error_suppression_limit, and `interval_s` the error_suppression_interval."""
        self.limit = limit
        self.interval_s = interval_s
        self._max_nodes = max_nodes
        self._rows: dict[str, Exceptions] = {}
        self._well: dict[str, float] = {}

    def failed(self, node: str, now: float) -> bool:
        """Count an exception; return whether it suppresses a node that was not suppressed before."""
        before = self._row(node, now)
        count = min((before.n_exception if before else 0) + 1, MAX_EXCEPTIONS)
        self._put(node, Exceptions(count, now))
        return count == self.limit

    def suppress(self, node: str, now: float) -> bool:
        """Restart the interval, whatever the count; return whether the node was not suppressed before."""
        before = self._row(node, now)
        count = before.n_exception if before else 0
        self._put(node, Exceptions(max(count, self.limit), now))
        return count < self.limit

    def succeeded(self, node: str, now: float) -> None:
        """Forget the node's exceptions."""
        self._rows.pop(node, None)
        self._well.pop(node, None)
        self._well[node] = now
        _bound(self._well, self._max_nodes)

    def suppressed(self, node: str, now: float) -> bool:
        """Return whether the node is to be left out."""
        row = self._row(node, now)
        return row is not None and row.n_exception >= self.limit

    def well_at(self, node: str) -> float:
        """Return when the node answered last; minus infinity if it never did."""
        return self._well.get(node, -math.inf)

    def rows(self, now: float) -> dict[str, Exceptions]:
        """Return the rows that have not expired."""
        return {node: row for node in list(self._rows) if (row := self._row(node, now)) is not None}

    def all_suppressed(self, now: float) -> list[str]:
        """Return the nodes that are to be left out."""
        return [node for node, row in self.rows(now).items() if row.n_exception >= self.limit]

    def merge(self, rows: Mapping[str, Exceptions], now: float) -> None:
        """Take over the rows of another table of the same observer: one from before its restart, or one stored in
        Redis.

        Of two counts the larger one holds, of two times the later one. Exceptions before a success that is known here
        do not count, nor those older than the interval. Times ahead of `now` are taken for `now`.
        """
        for node, row in rows.items():
            at = min(row.t_exception, now)
            if row.n_exception < 1 or self._over(at, now) or at <= self.well_at(node):
                continue
            mine = self._row(node, now) or Exceptions(0, at)
            count = min(max(mine.n_exception, row.n_exception), MAX_EXCEPTIONS)
            self._put(node, Exceptions(count, max(mine.t_exception, at)))

    def keep(self, nodes: frozenset[str]) -> None:
        """Forget all other nodes, which have left the rings."""
        for known in (self._rows, self._well):
            for node in known.keys() - nodes:
                del known[node]

    def _row(self, node: str, now: float) -> Exceptions | None:
        row = self._rows.get(node)
        if row is not None and self._over(row.t_exception, now):
            del self._rows[node]
            return None
        return row

    def _over(self, t_exception: float, now: float) -> bool:
        return now - t_exception >= self.interval_s

    def _put(self, node: str, row: Exceptions) -> None:
        self._rows.pop(node, None)
        self._rows[node] = row
        _bound(self._rows, self._max_nodes)


def _bound(known: dict[str, Exceptions] | dict[str, float], most: int) -> None:
    """Remove the entries that were added first, until at most `most` are left."""
    while len(known) > most:
        del known[next(iter(known))]
