"""Limits how many clusters have their pods restarted at a time, among all that one operator looks after.

A new version of the operator, or one image that many clusters use, changes the pods of all of them at once. A cluster
takes a turn before its first pod is restarted and gives it back when its restarts are over; a cluster that finds no
free turn waits. A cluster in the middle of restarts goes on in any case: stopping half way would be less safe.

A cluster whose restarts do not end within `spec.upgrade.timeoutSeconds` is stuck. While one is, no other begins, as
what broke it may break the next; with `continue_after_timeout` it does not count any more, and the next one begins.

Fault model: turns are in memory. After another replica of the operator has taken over, clusters in the middle of their
restarts take theirs again with their next look, and until then one more cluster may begin.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from swiftlet_operator.reconcile import Key

UNLIMITED = 0


@dataclass(slots=True)
class Turns:
    """The clusters that have a turn: at most `limit` of them, any number with UNLIMITED."""

    limit: int = 1
    continue_after_timeout: bool = False
    _stuck: dict[Key, bool] = field(default_factory=dict)
    """Clusters with a turn, and whether each is stuck."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, key: Key) -> Callable[[bool, bool, bool], str]:
        """Return the function by which a cluster's plan asks for its turn; see `plan.upgrades.Turn`."""

        def ask(wants: bool, in_the_middle: bool, is_stuck: bool) -> str:
            with self._lock:
                return self._asked(key, wants, in_the_middle, is_stuck)

        return ask

    def _asked(self, key: Key, wants: bool, in_the_middle: bool, is_stuck: bool) -> str:
        if not wants:
            self._stuck.pop(key, None)
            return ""
        if is_stuck and key not in self._stuck and not in_the_middle:
            # The trouble is older than any restart: it takes no turn, and what may cure it goes on.
            return ""
        if key in self._stuck or in_the_middle or self.limit == UNLIMITED:
            self._stuck[key] = is_stuck
            return ""
        stuck = [one for one, is_one in self._stuck.items() if is_one]
        if stuck and not self.continue_after_timeout:
            return (
                f"the restarts of {_named(stuck)} did not end in time, and no other cluster begins until they do "
                "(upgrades.continueAfterTimeout of the operator's chart)"
            )
        busy = [one for one, is_one in self._stuck.items() if not is_one]
        if len(busy) >= self.limit:
            return f"{_named(busy)} is being restarted, at most {self.limit} at a time (upgrades.maxClusters)"
        self._stuck[key] = is_stuck
        return ""


def _named(keys: list[Key]) -> str:
    return ", ".join(sorted(f"{one.namespace}/{one.name}" for one in keys))
