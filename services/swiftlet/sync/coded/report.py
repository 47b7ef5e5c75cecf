"""What a round of repairs has found and done, for the log, the status report and Prometheus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prometheus_client import Counter, Gauge

_COMPARED = Counter(
    "swiftlet_replicator_coded_compared_total",
    "Comparisons of a place's fragments of a partition with the next place that answers.",
    ["result"],
)
_REPAIRED = Counter(
    "swiftlet_replicator_coded_repaired_total",
    "Fragments rebuilt at their place, copies of small objects brought, decisions and deletions told, versions "
    "settled, spares dropped once their place has them.",
    ["how"],
)
_REBUILT_BYTES = Counter("swiftlet_replicator_coded_rebuilt_bytes_total", "Bytes of fragments that were rebuilt.")
_RECOVERED = Counter(
    "swiftlet_replicator_coded_recovered_total",
    "Attempts to have devices decide about a write whose proxy is gone.",
    ["outcome"],
)
_FAILED = Counter("swiftlet_replicator_coded_failed_total", "Repairs that failed and are tried again.", ["why"])
_UNDECIDED = Gauge(
    "swiftlet_replicator_coded_undecided",
    "Versions at local devices of which nobody there knows what became of them, in the last round.",
)
_LEFT = Gauge(
    "swiftlet_replicator_coded_left",
    "Records known to be lacking at a place that the last round of repairs has not brought.",
)
LAST_ROUND = Gauge("swiftlet_replicator_coded_last_round_timestamp_seconds", "When the last round of repairs ended.")

How = Literal["rebuilt", "copied", "told", "settled", "handed_back"]
Why = Literal["too_few", "unproved", "refused"]


@dataclass(slots=True)
class CodedReport:
    """The numbers of one round of repairs."""

    compared: int = 0
    """Comparisons of a partition's fragments at a place with another place."""
    equal: int = 0
    unchecked: int = 0
    """Partitions of places that no other place could be compared with, and devices that could not be read."""
    rebuilt: int = 0
    rebuilt_bytes: int = 0
    copied: int = 0
    """Copies of small objects, and deletions and metadata of them, that were brought to a place."""
    told: int = 0
    """Decisions and deletions that a place did not know."""
    settled: int = 0
    brought: int = 0
    """Records that a place had lacked, and has."""
    left: int = 0
    """Records known to be lacking at a place that the round has not brought: its bound was reached, or they failed."""
    handed_back: int = 0
    """Fragments that devices dropped after the device of their place had them."""
    unreturned: int = 0
    """Partitions of other devices whose fragments were not returned, as the round's bound was reached."""
    recovered: int = 0
    """Writes whose proxy is gone, and about which devices have decided."""
    undecided: int = 0
    """Versions of which nobody at a local device knows what became of them."""
    failed: int = 0
    too_few: int = 0
    """Those among `failed` of which fewer fragments can be read than are needed."""
    is_bounded: bool = False
    """Whether the round's bound was reached."""
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        """Whether all places were equal, and nothing was left undecided."""
        return self.compared == self.equal and not (self.unchecked or self.failed or self.undecided)

    @property
    def goes_on(self) -> bool:
        """Whether the round's bound has ended it, so that another one has something to do at once."""
        return self.is_bounded and self.rebuilt + self.copied + self.told + self.handed_back > 0

    def count(self, compared: int, equal: int) -> None:
        """Count comparisons, and those of them that found nothing."""
        self.compared += compared
        self.equal += equal
        _COMPARED.labels("equal").inc(equal)
        _COMPARED.labels("differs").inc(compared - equal)

    def uncompared(self, partitions: int = 1) -> None:
        """Count partitions for which no other place could be asked, or a device that could not be read."""
        self.unchecked += partitions
        _COMPARED.labels("failed").inc(partitions)

    def repaired(self, how: How, made_bytes: int = 0) -> None:
        """Count a repair, and the bytes of a fragment that were made for it."""
        setattr(self, how, getattr(self, how) + 1)
        self.rebuilt_bytes += made_bytes
        _REPAIRED.labels(how).inc()
        _REBUILT_BYTES.inc(made_bytes)

    def decided(self, outcome: str) -> None:
        """Count an attempt to decide about a write."""
        self.recovered += outcome != "later"
        _RECOVERED.labels(outcome).inc()

    def fail(self, why: Why) -> None:
        """Count a repair that failed."""
        self.failed += 1
        self.too_few += why == "too_few"
        _FAILED.labels(why).inc()

    def end(self, seconds: float) -> None:
        """The round is over, after this time."""
        self.seconds = seconds
        _LEFT.set(self.left)
        _UNDECIDED.set(self.undecided)
        LAST_ROUND.set_to_current_time()
