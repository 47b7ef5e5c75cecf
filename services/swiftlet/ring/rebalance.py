"""Changes an assignment table towards its plans with as little movement as possible.

The steps, in this order, each partition being touched by at most one of them:
1. `place`: replicas without a device (new ones, and those of removed devices) get one. These are the only ones that
   don't wait for `min_part_hours`: their data is not there at all. All replicas of a partition that were on removed
   devices are replaced at once, its remaining ones are left alone.
2. `disperse`: partitions with more (fewer) replicas in a tier than planned move one replica.
3. `shed`: devices that hold more than their quota hand replicas to devices that hold less; no more replicas move than
   there are too many. Where no direct move keeps the partition's dispersion, a detour of two moves through a third
   device is looked for.

Of the devices that may take a replica, it goes to the one that shares the fewest partitions with the replicas staying
behind (in proportion to its quota), so that a failed device's partners are spread over all devices.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Callable, Sequence
from random import Random

from swiftlet.ring.model import NOBODY, replica_classes
from swiftlet.ring.patterns import Patterns
from swiftlet.ring.plan import Plan
from swiftlet.ring.topology import Topology

Progress = Callable[[int, int], None]
"""A function that is called repeatedly with (replicas done, replicas to do)."""

_WINDOW = 32
"""The number of devices in need that are compared for one replica."""
_CHOICES = 3
"""The number of partitions of an overfull device that are compared for one move."""
_DETOURS = 24
"""The number of partitions that are tried for each half of a detour."""
_SMOOTHED = 40_000
"""The number of partitions that are checked to even out the pairs of a first layout; in small rings several times."""
_SMOOTHING_ROUNDS = 4
_DENSE_PAIRS = 2048
"""The number of devices up to which pair counts are kept as full rows."""
_TICK = 2048
"""The number of replicas between two reports of progress."""


class Assignment:
    """An assignment table being changed: rows of device positions (in the topology), `NOBODY` for none.

    `needs[position]` is quota minus replicas held. `moved` and `assigned` count replicas that changed their device and
    replicas that got their first one. `touched[partition]` is 1 for changed partitions.
    """

    def __init__(
        self,
        topology: Topology,
        plans: Sequence[Plan],
        rows: list[array[int]],
        movable: Sequence[int],
        rng: Random,
        progress: Progress | None = None,
    ) -> None:
        """`plans[i]` is for the i-th of the `replica_classes`; `movable[partition]` tells that its min_part_hours are
        over.
        """
        self.topology = topology
        self.rows = rows
        self.movable = movable
        self.touched = bytearray(len(rows[0]))
        self.moved = 0
        self.assigned = 0
        self._random = rng.random
        self._progress = progress or (lambda done, total: None)
        size = len(topology.devices)
        self._patterns: list[tuple[int, int, int, Patterns]] = [
            (start, end, replicas, Patterns(topology, plan))
            for (start, end, replicas), plan in zip(replica_classes([len(row) for row in rows]), plans, strict=True)
        ]
        quotas = [sum(plan.quota[leaf] for plan in plans) for leaf in topology.leaf]
        held: Counter[int] = Counter()
        for row in rows:
            held.update(row)
        exact = [sum(plan.target[leaf] * plan.partitions for plan in plans) for leaf in topology.leaf]
        self.needs = _without_rounding(
            [quota - held[i] for i, quota in enumerate(quotas)], [held[i] - e for i, e in enumerate(exact)]
        )
        self._scale = [1.0 / quota if quota else 1.0 for quota in quotas]
        self._needy = [position for position in range(size) if self.needs[position] > 0]
        self._pairs = _count_pairs(rows, size)

    def place(self, fresh: Sequence[int]) -> None:
        """Give every replica without a device one; `fresh[replica]` is the first partition that never had it."""
        open_slots = [
            (partition, replica)
            for replica, row in enumerate(self.rows)
            if NOBODY in row
            for partition, device in enumerate(row)
            if device == NOBODY
        ]
        self._shuffle(open_slots)
        for done, (partition, replica) in enumerate(open_slots):
            if done % _TICK == 0:
                self._progress(done, len(open_slots))
            patterns, others = self._look(partition, replica)
            self._take(partition, replica, self._best(patterns, others), others)
            if partition >= fresh[replica]:
                self.assigned += 1
            else:
                self.moved += 1

    def disperse(self) -> None:
        """Move one replica of every partition that deviates from its plan, where that is allowed now."""
        for start, end, replicas, patterns in self._patterns:
            mark = patterns.mark
            marks = [[mark[device] for device in row[start:end]] for row in self.rows[:replicas]]
            misplaced = patterns.misplaced
            wrong = [
                (partition, positions)
                for partition, key in enumerate(zip(*marks, strict=True), start)
                if (positions := misplaced(key)) and self._free(partition)
            ]
            self._shuffle(wrong)
            for partition, positions in wrong:
                replica = min(positions, key=lambda position: self.needs[self.rows[position][partition]])
                self._move_best(patterns, partition, replica)

    def shed(self) -> None:
        """Move replicas from overfull devices to those in need, as far as partitions may move now."""
        holders = self._holders([position for position, need in enumerate(self.needs) if need < 0])
        units = [position for position, need in enumerate(self.needs) for _ in range(-need)]
        self._shuffle(units)
        stuck: dict[int, list[tuple[int, int]]] = {position: [] for position in holders}
        for done, source in enumerate(units):
            if done % _TICK == 0:
                self._progress(done, len(units))
            if not self._needy:
                break
            self._shed_one(source, holders[source], stuck[source])
        if self._needy:
            self._detours([position for position in units if self.needs[position] < 0], stuck)

    def smooth(self) -> None:
        """Exchange devices between partitions where that evens out pairs; for first layouts, nothing counts as moved.

        Only the partitions whose pairs are the most crowded are changed; totals per device and dispersion stay as they
        are.
        """
        partitions = len(self.rows[0])
        looks = max(partitions // 8, min(_SMOOTHED, _SMOOTHING_ROUNDS * partitions))
        for _ in range(-(-looks // partitions)):
            crowding = [self._crowding(partition) for partition in range(partitions)]
            worst = sorted(range(partitions), key=crowding.__getitem__, reverse=True)[:looks]
            for done, partition in enumerate(worst):
                if done % _TICK == 0:
                    self._progress(done, len(worst))
                for start, end, replicas, patterns in self._patterns:
                    if start <= partition < end:
                        self._exchange(patterns, partition, int(self._random() * replicas))
            looks -= partitions

    def finished(self) -> None:
        """Report the end of progress."""
        self._progress(1, 1)

    # One replica at a time.

    def _free(self, partition: int) -> bool:
        return bool(self.movable[partition]) and not self.touched[partition]

    def _look(self, partition: int, replica: int) -> tuple[Patterns, list[int]]:
        """Return the partition's class, and the devices of its other replicas."""
        others = [
            device
            for index, row in enumerate(self.rows)
            if index != replica and partition < len(row) and (device := row[partition]) != NOBODY
        ]
        for start, end, _, patterns in self._patterns:
            if start <= partition < end:
                return patterns, others
        raise AssertionError(f"partition {partition} is in no class")

    def _best(self, patterns: Patterns, others: list[int], avoid: int = NOBODY) -> int:
        """Return the device for one more replica beside `others`: one in need, or else the one least overfull."""
        room = patterns.room(others)
        found = self._neediest(room.mask, others, avoid)
        if found is not None:
            return found[1]
        candidates = [device for device in room.devices if device not in others and device != avoid]
        if not candidates:
            weighted = enumerate(self.topology.devices)
            candidates = [position for position, device in weighted if device.weight and position not in others]
        return max(candidates, key=lambda device: self.needs[device] * self._scale[device])

    def _neediest(self, mask: bytes, others: list[int], avoid: int = NOBODY) -> tuple[float, int] | None:
        """Return (crowding, device) of the best device in need within `mask`; None if there is none."""
        needy = self._needy
        count = len(needy)
        if count > _WINDOW:
            start = int(self._random() * count)
            window = needy[start : start + _WINDOW]
            if len(window) < _WINDOW:
                window += needy[: _WINDOW - len(window)]
            found = self._least_crowded([d for d in window if mask[d] and d not in others and d != avoid], others)
            if found is not None:
                return found
        return self._least_crowded([d for d in needy if mask[d] and d not in others and d != avoid], others)

    def _least_crowded(self, candidates: list[int], others: list[int]) -> tuple[float, int] | None:
        if not candidates:
            return None
        scale = self._scale
        pairs = [self._pairs[other] for other in others]
        if len(pairs) == 2:
            first, second = pairs
            return min([((first[d] + second[d]) * scale[d], d) for d in candidates])
        return min([(sum([row[d] for row in pairs]) * scale[d], d) for d in candidates])

    def _take(self, partition: int, replica: int, device: int, others: list[int]) -> None:
        """Put a replica without a device on one."""
        self.rows[replica][partition] = device
        self.touched[partition] = 1
        self._count(device, others, 1)

    def _count(self, device: int, others: list[int], sign: int) -> None:
        self.needs[device] -= sign
        if sign > 0 and self.needs[device] == 0:
            self._needy.remove(device)
        elif sign < 0 and self.needs[device] == 1:
            self._needy.append(device)
        mine = self._pairs[device]
        for other in others:
            mine[other] += sign
            self._pairs[other][device] += sign

    def _move(self, partition: int, replica: int, device: int, others: list[int]) -> None:
        self._count(self.rows[replica][partition], others, -1)
        self._take(partition, replica, device, others)
        self.moved += 1

    def _move_best(self, patterns: Patterns, partition: int, replica: int) -> None:
        """Move a misplaced replica to the best place there is, unless its own is as good."""
        _, others = self._look(partition, replica)
        old = self.rows[replica][partition]
        if not patterns.room(others).mask[old]:
            self._move(partition, replica, self._best(patterns, others, avoid=old), others)

    def _shed_one(self, source: int, pool: deque[tuple[int, int]], stuck: list[tuple[int, int]]) -> None:
        """Move one of the source's replicas: the best of a few partitions that can move directly."""
        best: tuple[float, int, int, int, list[int]] | None = None
        turned_down: list[tuple[int, int]] = []
        for _ in range(len(pool)):
            partition, replica = pool.popleft()
            if self.touched[partition]:
                continue
            patterns, others = self._look(partition, replica)
            found = self._neediest(patterns.room(others).mask, others, avoid=source)
            if found is None:
                stuck.append((partition, replica))  # Devices in need only become fewer, so it stays impossible.
                continue
            mine = self._pairs[source]
            relief = sum([mine[other] for other in others]) * self._scale[source]
            turned_down.append((partition, replica))
            offer = (found[0] - relief, partition, replica, found[1], others)
            if best is None or offer < best:
                best = offer
            if len(turned_down) == _CHOICES:
                break
        if best is None:
            return
        _, partition, replica, device, others = best
        self._move(partition, replica, device, others)
        pool.extend(slot for slot in turned_down if slot[0] != partition)

    def _detours(self, units: list[int], stuck: dict[int, list[tuple[int, int]]]) -> None:
        """Move surpluses that no direct move takes away by detours: source -> third device -> device in need."""
        if not units:
            return
        holders = self._holders(range(len(self.needs)))
        for source in units:
            if not self._needy:
                return
            slots = [slot for slot in stuck[source] if not self.touched[slot[0]]]
            if not any(self._detour(source, slot, holders) for slot in slots[:_DETOURS]):
                stuck[source] = slots[_DETOURS:]

    def _detour(self, source: int, slot: tuple[int, int], holders: dict[int, deque[tuple[int, int]]]) -> bool:
        partition, replica = slot
        patterns, others = self._look(partition, replica)
        for third in patterns.room(others).devices:
            if third in others or third == source:
                continue
            pool = holders[third]
            for _ in range(min(len(pool), _DETOURS)):
                pool.rotate(-1)
                onward, place = pool[0]
                if self.touched[onward] or onward == partition:
                    continue
                next_patterns, next_others = self._look(onward, place)
                found = self._neediest(next_patterns.room(next_others).mask, next_others, avoid=third)
                if found is not None:
                    self._move(onward, place, found[1], next_others)
                    self._move(partition, replica, third, others)
                    return True
        return False

    def _crowding(self, partition: int) -> float:
        devices = [row[partition] for row in self.rows if partition < len(row)]
        pairs, scale = self._pairs, self._scale
        return max([pairs[a][b] * scale[a] * scale[b] for i, a in enumerate(devices) for b in devices[:i]], default=0)

    def _exchange(self, patterns: Patterns, partition: int, replica: int) -> None:
        """Swap one replica with that of another partition if pairs become more even by it."""
        _, others = self._look(partition, replica)
        mine = self.rows[replica][partition]
        room = patterns.room(others).mask
        best: tuple[float, int, int, list[int]] | None = None
        row = self.rows[replica]
        for _ in range(_CHOICES * 2):
            other = int(self._random() * len(row))
            theirs = row[other]
            if theirs == mine or theirs in others or not room[theirs]:
                continue
            their_patterns, their_others = self._look(other, replica)
            if mine in their_others or not their_patterns.room(their_others).mask[mine]:
                continue
            gain = self._crowd(mine, others) + self._crowd(theirs, their_others)
            gain -= self._crowd(theirs, others) + self._crowd(mine, their_others)
            if best is None or gain > best[0]:
                best = (gain, other, theirs, their_others)
        if best is not None and best[0] > 0:
            _, other, theirs, their_others = best
            row[partition], row[other] = theirs, mine
            for device, beside, sign in (
                (mine, others, -1),
                (theirs, their_others, -1),
                (theirs, others, 1),
                (mine, their_others, 1),
            ):
                for third in beside:
                    self._pairs[device][third] += sign
                    self._pairs[third][device] += sign

    def _crowd(self, device: int, others: list[int]) -> float:
        mine, scale = self._pairs[device], self._scale
        return sum([mine[other] * scale[other] for other in others]) * scale[device]

    # Helpers.

    def _holders(self, positions: Sequence[int]) -> dict[int, deque[tuple[int, int]]]:
        """Return for each device its (partition, replica) that may move now, in random order."""
        lists: dict[int, list[tuple[int, int]]] = {position: [] for position in positions}
        for replica, row in enumerate(self.rows):
            for partition, device in enumerate(row):
                if device in lists and self._free(partition):
                    lists[device].append((partition, replica))
        for slots in lists.values():
            self._shuffle(slots)
        return {position: deque(slots) for position, slots in lists.items()}

    def _shuffle(self, items: list[tuple[int, int]] | list[int] | list[tuple[int, tuple[int, ...]]]) -> None:
        random = self._random
        items.sort(key=lambda _: random())


def _without_rounding(needs: list[int], deviations: list[float]) -> list[int]:
    """Return the needs without those that come from rounding alone: devices less than one off their targets give
    nothing.
    """
    over = [i for i, need in enumerate(needs) if need == -1 and deviations[i] < 1]
    under = [i for i, need in enumerate(needs) if need == 1 and deviations[i] > -1]
    for pair in zip(over, under, strict=False):
        for position in pair:
            needs[position] = 0
    return needs


class _Sparse(dict[int, int]):
    """A row of pair counts that stores no zeros for pairs that are only read."""

    def __missing__(self, key: int) -> int:
        return 0


def _count_pairs(rows: Sequence[array[int]], size: int) -> list[list[int]] | list[_Sparse]:
    """Return `pairs[a][b]`, the number of partitions that devices a and b both hold; `pairs[a][a]` means nothing."""
    dense = size <= _DENSE_PAIRS
    pairs: list[list[int]] | list[_Sparse] = (
        [[0] * size for _ in range(size)] if dense else [_Sparse() for _ in range(size)]
    )
    for index, row in enumerate(rows):
        for other in rows[:index]:
            for (a, b), count in Counter(zip(row, other, strict=False)).items():
                if a != NOBODY and b != NOBODY:
                    pairs[a][b] += count
                    pairs[b][a] += count
    return pairs
