"""Shows what accounts hold as metrics, for the busiest accounts of this server only, as there may be any number of
them.

An account is busy if there were requests about it or reports to it lately: proxies ask every few seconds for an account
that is written to, and containers report changed totals. The counts are halved at each look, so that accounts that are
no longer busy make room. Each of an account's replicas shows it, so readers take the largest number.

Fault model: an account whose database can't be read is left out until it can.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest

from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from swiftlet.errors import SwiftletError
from swiftlet.listing.pool import ListingStore
from swiftlet.model import AccountInfo

BUSIEST = 100
"""The number of accounts that are shown."""
MAX_TRACKED = 10_000
"""The largest number of accounts that are counted; when it is reached, no further ones are added."""

_Place = tuple[str, int, str]


class AccountUsage:
    """The usage of the busiest accounts; counted and read in the event loop, shown from any thread."""

    def __init__(self, stores: Mapping[str, ListingStore], interval_s: float = 15.0) -> None:
        """`stores` by the devices' names on this server; looks are `interval_s` seconds apart."""
        self._stores = stores
        self._interval_s = interval_s
        self._seen: dict[_Place, int] = {}
        self._shown: Mapping[str, AccountInfo] = {}

    def note(self, device: str, partition: int, account: str) -> None:
        """Count a request about an account, or a report to it."""
        place = (device, partition, account)
        if place in self._seen or len(self._seen) < MAX_TRACKED:
            self._seen[place] = self._seen.get(place, 0) + 1

    async def look(self) -> None:
        """Read the usage of the busiest accounts, and reduce the counts of all."""
        busiest = nlargest(BUSIEST, self._seen, key=self._seen.__getitem__)
        shown: dict[str, AccountInfo] = {}
        for device, partition, account in busiest:
            try:
                shown[account] = await self._stores[device].account_info(partition, account)
            except (SwiftletError, KeyError):
                continue
        self._shown = shown
        self._seen = {place: count // 2 for place, count in self._seen.items() if count}

    async def run(self) -> None:
        """Read the usage repeatedly and show it as metrics, until cancelled."""
        _looking.append(self)
        try:
            while True:
                await self.look()
                await asyncio.sleep(self._interval_s)
        finally:
            _looking.remove(self)

    @property
    def shown(self) -> Mapping[str, AccountInfo]:
        """The usage of the busiest accounts, as last read."""
        return self._shown


class _Page(Collector):
    """The metrics of all instances in this process."""

    def collect(self) -> Iterable[Metric]:
        shown = {account: info for usage in list(_looking) for account, info in usage.shown.items()}
        values: Mapping[str, Callable[[AccountInfo], int]] = {
            "bytes_used": lambda info: info.bytes_used,
            "objects": lambda info: info.object_count,
            "containers": lambda info: info.container_count,
        }
        for name, value in values.items():
            text = f"What accounts hold, of the {BUSIEST} busiest here: {name}."
            family = GaugeMetricFamily(f"swiftlet_account_{name}", text, labels=["account"])
            for account, info in shown.items():
                family.add_metric([account], value(info))
            yield family


_looking: list[AccountUsage] = []
REGISTRY.register(_Page())
