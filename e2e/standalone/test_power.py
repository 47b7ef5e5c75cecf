"""Container servers lose their power under PUTs through the front: devices bring back the rows that were not synced."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.power import Power
from e2e.standalone.test_front_put import FRONT, WRITERS, Writing, check, taken, until
from swiftlet.main.commands.standalone.plan import Layout


@pytest.fixture(scope="module")
def power(tmp_path_factory: pytest.TempPathFactory) -> Power:
    return Power(tmp_path_factory.mktemp("power"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, power: Power) -> Iterator[Cluster]:
    running = start_cluster(tmp_path_factory.mktemp("dark"), "--workers", "1", settings=FRONT | power.settings)
    yield running
    assert running.stop() == 0


def test_rows_that_all_container_servers_lose_with_their_power_come_back(cluster: Cluster, power: Power) -> None:
    """All of them at once: nobody but the devices has these rows."""
    writing = Writing(cluster, "dark")
    servers = [name for name in cluster.services if name.startswith("container-")]

    def something_is_lost() -> bool:
        """Cut the power while rows are taken that were not synced yet; mostly there are some at the first attempt."""
        before = taken(cluster)
        until(lambda: taken(cluster) > before + WRITERS, "rows taken natively")
        cluster.kill(*servers)
        for server in servers:
            power.cut(Layout(cluster.data).devices / f"c{server.partition('-')[2]}")
        cluster.start(*servers)
        return power.lost_rows_bytes > 0

    until(something_is_lost, "rows that are lost")
    writing.stop()
    assert set(writing.others) <= {503}
    check(cluster, "dark", writing.created)
