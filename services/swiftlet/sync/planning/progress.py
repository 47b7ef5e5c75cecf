"""How far a round is, when it will end, and what of it can wait after a restart. No I/O.

The partitions that a round has compared are kept as one bit each per device and ring, and can be written down as a
short text. A replicator that is started again puts these partitions last. The text decides nothing but the order, so an
old, lost or wrong one costs nothing else.
"""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict

from prometheus_client import Gauge

from swiftlet.sync.planning.device_partitions import DevicePartitions
from swiftlet.sync.planning.report import RoundReport

PARTITIONS = Gauge("swiftlet_replicator_round_partitions", "Partitions of the round that is going on.", ["state"])
REMAINING = Gauge("swiftlet_replicator_round_remaining_seconds", "How long the round will still take, as it looks now.")
_TOTAL, _DONE = PARTITIONS.labels("total"), PARTITIONS.labels("done")

MAX_TEXT_BYTES = 1 << 20
"""The largest text that is written or read; what is longer is ignored."""
_ROUNDS_KEPT = 5
_MANY = 1024
"""The number of partitions that finish together from which on their bits are set only when they are written down: most
rounds find nothing to do, and end before that.
"""
_SHOWN_EVERY = 32
"""The metrics are set after so many partitions, and at the end, because setting them costs more than counting."""


class Progress:
    """The progress of one replicator's rounds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, now_s: Callable[[], float] = time.time) -> None:
        """`clock` returns monotonic seconds, and `now_s` seconds since the epoch."""
        self._clock = clock
        self._now_s = now_s
        self._began: float | None = None
        self._total = self._done = 0
        self._bits: dict[str, bytearray] = {}
        self._whole: list[tuple[str, Collection[int]]] = []
        """Finished partitions whose bits are not set yet, by the key of their device and ring."""
        self._former: dict[str, bytes] = {}
        self.rounds: deque[dict[str, object]] = deque(maxlen=_ROUNDS_KEPT)
        """The reports of the last rounds, the newest last."""

    def begin(self, work: Iterable[tuple[DevicePartitions, Collection[int]]]) -> None:
        """Begin a round with these partitions to compare."""
        self._began, self._done, self._total = self._clock(), 0, 0
        self._bits, self._whole = {}, []
        for own, partitions in work:
            self._total += len(partitions)
            bits = self._bits.setdefault(_key(own), bytearray())
            highest = max(partitions, default=-1)
            if len(bits) * 8 <= highest:
                bits.extend(bytes(highest // 8 + 1 - len(bits)))
        self._show()

    def done(self, own: DevicePartitions, partition: int, whole: bool) -> None:
        """Count a partition as finished; `whole` tells that it was compared with all its peers."""
        self._done += 1
        if whole:
            self._bits[_key(own)][partition // 8] |= 1 << partition % 8
        if self._done % _SHOWN_EVERY == 0 or self._done >= self._total:
            self._show()

    def done_all(self, own: DevicePartitions, partitions: Collection[int]) -> None:
        """Count partitions as finished that were compared with all their peers; the collection must not change any
        more.
        """
        self._done += len(partitions)
        self._whole.append((_key(own), partitions))
        if len(partitions) < _MANY:
            self._set_bits()
        self._show()

    def _set_bits(self) -> None:
        """Set the bits of all partitions that are finished."""
        finished, self._whole = self._whole, []
        for key, partitions in finished:
            bits = self._bits.setdefault(key, bytearray())
            for partition in partitions:
                bits[partition // 8] |= 1 << partition % 8

    def again(self, count: int) -> None:
        """Record that this many partitions are compared once more because a peer has returned."""
        self._total += count
        self._show()

    def end(self, report: RoundReport) -> None:
        """Record the end of a round and its report."""
        self._began, self._bits, self._whole, self._former = None, {}, [], {}
        self.rounds.append({"endedAt": self._now_s(), **asdict(report)})
        REMAINING.set(0)

    @property
    def remaining_s(self) -> float | None:
        """Seconds to the end of the round at its mean speed so far; None when that is unknown."""
        if self._began is None or not self._done:
            return None
        return (self._clock() - self._began) / self._done * (self._total - self._done)

    def report(self) -> dict[str, object] | None:
        """Return the progress of the round for the status report; None between two rounds."""
        if self._began is None:
            return None
        remaining_s = self.remaining_s
        return {
            "partitions": self._total,
            "done": self._done,
            "runningForS": round(self._clock() - self._began, 1),
            "remainingS": None if remaining_s is None else round(remaining_s, 1),
        }

    def _show(self) -> None:
        _TOTAL.set(self._total)
        _DONE.set(self._done)
        REMAINING.set(self.remaining_s or 0)

    # What a restart takes over.

    def text(self) -> str:
        """Return as text which partitions were compared with all peers in this round.

        The text is empty between rounds, and when it would be too long.
        """
        if sum(map(len, self._bits.values())) > MAX_TEXT_BYTES:
            return ""
        self._set_bits()
        packed = {key: base64.b64encode(zlib.compress(bytes(bits))).decode() for key, bits in self._bits.items()}
        text = json.dumps(packed) if packed else ""
        return text if len(text) <= MAX_TEXT_BYTES else ""

    def recall(self, text: str | None) -> None:
        """Take over the text that the replicator wrote before it was restarted; one that can't be read is ignored."""
        self._former = {}
        if not text or len(text) > MAX_TEXT_BYTES:
            return
        try:
            packed = json.loads(text)
            for key, value in packed.items():
                self._former[key] = zlib.decompressobj().decompress(base64.b64decode(value), MAX_TEXT_BYTES)
        except (ValueError, TypeError, AttributeError, RecursionError, zlib.error):
            self._former = {}

    def were_done(self, own: DevicePartitions, partitions: Iterable[int]) -> set[int]:
        """Return which partitions were compared with all peers, under the same ring, before the replicator was
        restarted.
        """
        bits = self._former.get(_key(own), b"")
        if not bits:
            return set()
        return {p for p in partitions if p // 8 < len(bits) and bits[p // 8] >> p % 8 & 1}


def _key(own: DevicePartitions) -> str:
    return f"{own.device.name}|{own.policy}|{own.ring.version}"
