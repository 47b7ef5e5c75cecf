"""The regions of the lab and the links between them.

The links are those of the first figure of the wide-area study of QFS, Swift and Tahoe-LAFS: 32.6 MiB/s between IL and
the other two, 60.2 MiB/s between NJ and GA, and 25 ms there and back. The figure has two rates for three links; which
of them belongs to which link is our reading of it.
"""

from __future__ import annotations

from bench.wan.lab import Link

REGIONS = ("il", "nj", "ga")
DRIVER = "ga"
"""The region of the client, as in the paper."""
SLOW_MIB_S, FAST_MIB_S = 32.6, 60.2
ROUND_TRIP_MS = 25.0
_MBIT_PER_MIB_S = 8 * 1.048576
_SLOW = Link(ROUND_TRIP_MS / 2, SLOW_MIB_S * _MBIT_PER_MIB_S)
_FAST = Link(ROUND_TRIP_MS / 2, FAST_MIB_S * _MBIT_PER_MIB_S)
LINKS = {("il", "nj"): _SLOW, ("il", "ga"): _SLOW, ("nj", "ga"): _FAST}
