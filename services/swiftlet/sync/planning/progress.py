"""How far a round is, when it will be through, and what of it need not be done first after a restart. No I/O.

What a round has compared is kept as one bit per partition of a device's ring, and can be written down as a short text.
A replicator that is started again puts these partitions last: its order is all that the text decides, so an old,
lost or wrong one costs nothing but order.
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
"""A longer text is not written, and not read."""
_ROUNDS_KEPT = 5
_SHOWN_EVERY = 32
"""Partitions after which the metrics are set anew, as they are at the end; to set them costs more than to count."""


class Progress:
    """The progress of one replicator's rounds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, now_s: Callable[[], float] = time.time) -> None:
        """`clock` in monotonic seconds, `now_s` the wall clock."""
        self._clock = clock
        self._now_s = now_s
        self._began: float | None = None
        self._total = self._done = 0
        self._bits: dict[str, bytearray] = {}
        self._former: dict[str, bytes] = {}
        self.rounds: deque[dict[str, object]] = deque(maxlen=_ROUNDS_KEPT)
        """The last ones, the newest last."""

    def begin(self, work: Iterable[tuple[DevicePartitions, Collection[int]]]) -> None:
        """A round begins that has these partitions to do."""
        self._began, self._done, self._total = self._clock(), 0, 0
        self._bits = {}
        for own, partitions in work:
            self._total += len(partitions)
            bits = self._bits.setdefault(_key(own), bytearray())
            highest = max(partitions, default=-1)
            if len(bits) * 8 <= highest:
                bits.extend(bytes(highest // 8 + 1 - len(bits)))
        self._show()

    def done(self, own: DevicePartitions, partition: int, whole: bool) -> None:
        """A partition was looked at; `whole` if all its peers were compared."""
        self._done += 1
        if whole:
            self._bits[_key(own)][partition // 8] |= 1 << partition % 8
        if self._done % _SHOWN_EVERY == 0 or self._done >= self._total:
            self._show()

    def done_all(self, own: DevicePartitions, partitions: Iterable[int]) -> None:
        """Partitions were compared in full."""
        bits = self._bits.setdefault(_key(own), bytearray())
        for partition in partitions:
            self._done += 1
            bits[partition // 8] |= 1 << partition % 8
        self._show()

    def again(self, count: int) -> None:
        """Record that this many partitions are compared once more because a peer has returned."""
        self._total += count
        self._show()

    def end(self, report: RoundReport) -> None:
        """The round is through."""
        self._began, self._bits, self._former = None, {}, {}
        self.rounds.append({"endedAt": self._now_s(), **asdict(report)})
        REMAINING.set(0)

    @property
    def remaining_s(self) -> float | None:
        """Seconds to the end of the round at its mean speed so far; None when that is not known."""
        if self._began is None or not self._done:
            return None
        return (self._clock() - self._began) / self._done * (self._total - self._done)

    def report(self) -> dict[str, object] | None:
        """For the status report: the round that is going on, None between two."""
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

    # Over a restart.

    def text(self) -> str:
        """Return the partitions that were fully compared in the current round, as text; empty between rounds, or if it
        is too long.
        """
        if sum(map(len, self._bits.values())) > MAX_TEXT_BYTES:
            return ""
        packed = {key: base64.b64encode(zlib.compress(bytes(bits))).decode() for key, bits in self._bits.items()}
        text = json.dumps(packed) if packed else ""
        return text if len(text) <= MAX_TEXT_BYTES else ""

    def recall(self, text: str | None) -> None:
        """Take over what a former life wrote down; what can't be read is nothing."""
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
        """Return the partitions that this replicator had fully compared, under the same ring, when it was killed."""
        bits = self._former.get(_key(own), b"")
        if not bits:
            return set()
        return {p for p in partitions if p // 8 < len(bits) and bits[p // 8] >> p % 8 & 1}


def _key(own: DevicePartitions) -> str:
    return f"{own.device.name}|{own.policy}|{own.ring.version}"
