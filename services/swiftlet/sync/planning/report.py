"""Reports of rounds, for the log and for Prometheus."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client import Counter, Gauge, Histogram

from swiftlet.sync.planning.regions import RegionStanding

ROUNDS = Counter("swiftlet_replicator_rounds_total", "Rounds completed.")
ROUND_SECONDS = Histogram(
    "swiftlet_replicator_round_seconds", "Duration of rounds.", buckets=(0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600)
)
COMPARED = Counter("swiftlet_replicator_compared_total", "Comparisons of a partition with one peer.", ["result"])
_RESULTS = {result: COMPARED.labels(result) for result in ("equal", "differs", "failed", "skipped")}
SESSIONS = Counter("swiftlet_replicator_sessions_total", "Sessions with a peer about many partitions.", ["result"])
PROVED = Counter("swiftlet_replicator_proved_total", "Partitions that a session proved to be equal at a peer.")
PUSHED = Counter("swiftlet_replicator_pushed_total", "Objects, metadata and tombstones sent to peers.", ["need"])
PUSHED_BYTES = Counter("swiftlet_replicator_pushed_bytes_total", "Bytes of objects sent to peers.")
PULLED = Counter("swiftlet_replicator_pulled_total", "Objects, metadata and tombstones fetched from peers.", ["need"])
PULLED_BYTES = Counter("swiftlet_replicator_pulled_bytes_total", "Bytes of objects fetched from peers.")
REMOVED = Counter(
    "swiftlet_replicator_handoffs_removed_total",
    "Handoff copies removed after all primaries had shown that they hold them.",
)
LAST_ROUND = Gauge("swiftlet_replicator_last_round_timestamp_seconds", "When the last round ended.")
REGION_BYTES = Counter(
    "swiftlet_replicator_region_bytes_total",
    "Bytes of objects exchanged with devices of other regions; direction is pushed or pulled.",
    ["region", "direction"],
)
_REGION_EQUAL = Gauge(
    "swiftlet_replicator_region_equal_timestamp_seconds",
    "What was written before this time is on the local devices of a ring and on those of another region.",
    ["ring", "region"],
)
_REGION_LACKING = Gauge(
    "swiftlet_replicator_region_lacking",
    "Records known to be lacking on the local devices of a ring or on those of another region, in the last round.",
    ["ring", "region"],
)
_REGION_BYTES = Gauge(
    "swiftlet_replicator_region_lacking_bytes",
    "Bytes of objects, about, that local devices of a ring are known to have and another region to lack.",
    ["ring", "region"],
)


class RegionGauges:
    """What local devices and those of other regions have in common, for Prometheus."""

    def __init__(self) -> None:
        """No gauge is set before `show`."""
        self._shown: set[tuple[str, str]] = set()

    def show(self, standings: Mapping[tuple[str, str], RegionStanding]) -> None:
        """Show these standings by ring and region, and none else; without a time that is known none is shown."""
        for key, one in standings.items():
            _REGION_LACKING.labels(*key).set(one.objects)
            _REGION_BYTES.labels(*key).set(one.size_bytes)
            if one.equal_at_s is not None:
                _REGION_EQUAL.labels(*key).set(one.equal_at_s)
        for key in self._shown - standings.keys():
            _REGION_LACKING.remove(*key)
            _REGION_BYTES.remove(*key)
            with contextlib.suppress(KeyError):
                _REGION_EQUAL.remove(*key)
        self._shown = set(standings)


@dataclass(slots=True)
class RoundReport:
    """The numbers of one round; `whole` tells that no ring changed during it."""

    compared: int = 0
    in_sync: int = 0
    failed: int = 0
    skipped: int = 0
    """Comparisons left out because the node of the peer was known to be unreachable."""
    pushed: int = 0
    pulled: int = 0
    removed: int = 0
    seconds: float = 0.0
    whole: bool = True

    def count(self, result: str, comparisons: int = 1) -> None:
        """Count comparisons of a partition with a peer; `result` is `equal`, `differs`, `failed` or `skipped`."""
        self.compared += comparisons
        self.in_sync += comparisons * (result == "equal")
        self.failed += comparisons * (result == "failed")
        self.skipped += comparisons * (result == "skipped")
        _RESULTS[result].inc(comparisons)

    @property
    def clean(self) -> bool:
        """Whether every comparison found the same on both sides."""
        return self.compared == self.in_sync and not self.failed
