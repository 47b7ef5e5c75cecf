"""What is left to do in a round, and what of it comes next. No I/O, no clock.

Peers that are back come first, then what a former life of the replicator had not done, both at random. What failed is
tried again before anything else, and handoffs go home in between.

What sessions leave for the next peers comes in small pieces, and a session costs more by its messages than by what a
few more partitions are: pieces are gathered until they are enough for a session, or nobody is at work who may add to
them, or that takes too long.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from swiftlet.sync.cases import Errand
from swiftlet.sync.failures.neighbours import node_of
from swiftlet.sync.session.queue import Homeward
from swiftlet.sync.share import Share

Home = tuple[Share, Homeward]
"""A handoff that is to go home."""
_Key = tuple[bool, int, int, bool]
"""Whether a former life had done it, share, peer, whether they are known to differ."""


class Agenda:
    """Of one round, for all shares."""

    def __init__(self, size_of: Callable[[Share], int], first: Iterable[str]) -> None:
        """`size_of`: how many partitions of a share go into sessions at a time; `first`: nodes that are back."""
        self.first = set(first)
        """Nodes that are back."""
        self._size_of = size_of
        self._shares: dict[int, Share] = {}
        self._waiting: dict[_Key, list[int]] = {}
        self._gathering: dict[_Key, list[int]] = {}
        self._retries: deque[Errand] = deque()
        self._homes: deque[Home] = deque()

    def __bool__(self) -> bool:
        """Whether anything is left."""
        return bool(self._waiting or self._gathering or self._retries or self._homes)

    @property
    def homes(self) -> Sequence[Home]:
        """Handoffs that are to go home."""
        return self._homes

    def compare(
        self, share: Share, peer: int, partitions: list[int], *, differ: bool, late: set[int], gather: bool = False
    ) -> None:
        """Partitions are to be compared with a peer; `late` are those of them that a former life had done.

        `gather`: a session leaves them, and others may add to them.
        """
        self._shares[id(share)] = share
        if len(partitions) > self._size_of(share):
            random.shuffle(partitions)
        for is_late, part in ((True, late), (False, [p for p in partitions if p not in late] if late else partitions)):
            if not part:
                continue
            key = is_late, id(share), peer, differ
            gathered = self._gathering.setdefault(key, [])
            gathered += part
            if not gather or len(gathered) >= self._size_of(share):
                self._waiting.setdefault(key, []).extend(self._gathering.pop(key))

    def ripen(self) -> None:
        """What has been gathered is as much as it will be."""
        for key, gathered in self._gathering.items():
            self._waiting.setdefault(key, []).extend(gathered)
        self._gathering.clear()

    def retry(self, errand: Errand) -> None:
        """What failed, to be tried in smaller pieces."""
        self._retries.append(errand)

    def go_home(self, homes: Iterable[Home]) -> None:
        """Handoffs, at random among those that wait."""
        shuffled = [*self._homes, *homes]
        random.shuffle(shuffled)
        self._homes = deque(shuffled)

    def go_home_first(self, homes: Iterable[Home]) -> None:
        """Handoffs whose primary is back."""
        self._homes.extendleft(homes)

    def next(self, alone: bool) -> Errand | Home | None:
        """The next piece of work, None while there is none; `alone`: nobody is at work."""
        if self._retries:
            return self._retries.popleft()
        if alone and not self._waiting:
            self.ripen()
        if self._homes and (not self._waiting or random.random() < 0.5):  # noqa: S311 - order
            return self._homes.popleft()
        return self._errand() if self._waiting else None

    def _errand(self) -> Errand:
        keys = list(self._waiting)
        random.shuffle(keys)
        key = min(keys, key=self._rank)
        _, share_id, peer, differs = key
        share, waiting = self._shares[share_id], self._waiting[key]
        size = self._size_of(share)
        partitions = waiting[-size:]
        del waiting[-size:]
        if not waiting:
            del self._waiting[key]
        return Errand(share, share.device_of(peer), differs, partitions)

    def _rank(self, key: _Key) -> tuple[bool, bool]:
        """Who is back comes first, what a former life did comes last."""
        late, share_id, peer, _ = key
        return node_of(self._shares[share_id].device_of(peer)) not in self.first, late
