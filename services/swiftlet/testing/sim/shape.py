"""The shape of a world, which follows from its seed: its size, mode and faults."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from swiftlet.sync.session.effects import Limits
from swiftlet.sync.session.topology import MODES, THOROUGH, Mode
from swiftlet.testing.sim.network import Weather
from swiftlet.testing.sim.node import ERROR_INTERVAL_S, WorldTerms

_MODE_WEIGHTS = {"batched": 10, "lightsync": 6, "all_to_all": 1, "star": 1, "chain": 1}
_PERIODS_TO_HEAR = 8
"""Rounds in which healthy devices have received every write, in spite of lost messages."""

_BY_NAME = 6
"""In each world whose seed is a multiple of this, partitions are compared by name."""
_REGIONS = (1, 1, 1, 3, 1, 2, 1)
"""The number of regions of a world, by its seed modulo the length of this."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One world. Times are in simulated seconds; `faults` happen one after the other, some at once."""

    mode: Mode
    nodes: int
    later: int
    """Devices that join while the world runs."""
    replicas: int
    part_power: int
    objects: int
    writes: int
    duration_s: float
    period_s: float
    weather: Weather
    unheard: float
    """The additional share of clients' messages to devices that are lost."""
    skew_s: float
    reclaim_age_s: float
    away_s: tuple[float, float]
    """The shortest and longest time for which a device is away."""
    faults: int
    limits: Limits
    by_name: bool = False
    """Whether servers know no pairs, as one without a ring, so that all partitions are compared by name."""
    regions: int = 1

    @property
    def world_terms(self) -> WorldTerms:
        """Return the terms of nodes; tombstones are forgotten in steps of a tenth of their age."""
        period_s = 60.0 if math.isinf(self.reclaim_age_s) else self.reclaim_age_s / 10
        return WorldTerms(self.mode, self.limits, self.reclaim_age_s, period_s, self.by_name)

    @property
    def is_thorough(self) -> bool:
        """Return whether devices compare with all others, as replicators do in `batched`."""
        return self.mode is THOROUGH

    @property
    def well_s(self) -> float:
        """Return in how many seconds a healthy device receives every write."""
        return _PERIODS_TO_HEAR * self.period_s + ERROR_INTERVAL_S + 2 * self.skew_s + 80.0

    @property
    def losses(self) -> int:
        """Return how many replicas of one object may be lost for good: fewer than a write quorum."""
        return self.replicas // 2


def shape_of(seed: int, mode: str | None = None, large: bool = False) -> Shape:
    """Return the world of a seed; `mode` and `large` (up to 64 nodes and 4096 partitions) override the
    seed's choice.
    """
    random = Random(f"shape {seed}")  # noqa: S311 - a simulation's chance
    name = mode or random.choices(list(_MODE_WEIGHTS), list(_MODE_WEIGHTS.values()))[0]
    replicas = random.choices((2, 3, 4, 5), (1, 4, 1, 2))[0]
    grand = large or random.random() < 0.01
    most = 64 if large else 16 if grand else 7
    nodes = max(replicas + 1, random.randint(20 if large else 4, most))
    forgets = random.random() < 0.5
    skew_s = random.choice((0.0, 1.0, 30.0, 120.0))
    edge = forgets and random.random() < 0.3
    period_s = random.choice((30.0, 45.0))
    reclaim_age_s = 8 * period_s + 2 * skew_s + 200.0 + random.random() * 400.0 if forgets else math.inf
    regions = _REGIONS[seed % len(_REGIONS)]
    return Shape(
        THOROUGH if regions > 1 and name == THOROUGH.name else MODES[name],
        nodes,
        random.choice((0, 0, 1, 2)),
        replicas,
        random.randint(8, 12) if large else random.randint(5, 7) if grand else random.randint(1, 3),
        400 if large else 60 if grand else random.randint(4, 14),
        800 if large else 150 if grand else random.randint(10, 60),
        reclaim_age_s * (random.uniform(2.0, 2.5) if edge else random.uniform(1.2, 1.7))
        if forgets
        else random.uniform(150.0, 500.0),
        period_s,
        Weather(
            random.choice((0.0, 0.0, 0.005) if forgets else (0.0, 0.01, 0.1)),
            random.choice((0.0, 0.05)),
            random.choice((0.005, 0.3, 1.5)),
        ),
        random.choice((0.0, 0.1, 0.4)),
        skew_s,
        reclaim_age_s,
        (reclaim_age_s * 0.8, reclaim_age_s * 1.3) if edge else (1.0, 100.0),
        random.choice((2, 3, 4) if edge else (0, 4, 8, 16)),
        random.choice(
            (
                Limits(),
                Limits(2, 1, 1, 1, 1, nodes=1, branches=1),
                Limits(3, 2, 2, 2, 2, nodes=2, branches=3),
            )
        ),
        by_name=seed % _BY_NAME == 0,
        regions=regions,
    )
