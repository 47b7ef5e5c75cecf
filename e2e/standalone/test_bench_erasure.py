"""`bench.erasure.objects`: its workloads, its tables, and what it tells of processor time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.erasure import processors
from bench.erasure.meanwhile import Reader, Readings, read_bytes
from bench.erasure.objects import Extent, Found, ratios, scheme_of, table, workloads
from bench.erasure.stores import stores
from bench.micro import Measured
from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.wire import Client
from swiftlet.bench.target import Target


def test_medians_and_ratios_are_told() -> None:
    known = stores(scheme_of("6+3"))
    found = Found()
    for store, rates in zip(known, ([100.0, 90.0, 110.0], [80.0], [20.0], [0.0]), strict=True):
        for rate in rates:
            found.add("PUT", store.name, rate)
    found.add("GET", known[1].name, 50.0)
    assert list(table(found, [store.name for store in known]))[2:] == [
        "| PUT | 100 (90 to 110) | 80 | 20 | 0 |",
        "| GET | - | 50 | - | - |",
    ]
    assert list(ratios(found, known)) == [
        "| Swiftlet, 6+3 is | times Swiftlet, 3 copies | times OpenStack, 6+3 |",
        "|---|---|---|",
        "| PUT | 0.80 | - |",
        "| GET | - | - |",
    ]


def test_an_extent_names_its_workloads() -> None:
    titles = [title for title, _ in workloads(Extent(1.0, [100], 16, 4))]
    assert titles == ["PUT 1 MiB, 8 clients", "GET 1 MiB, 8 clients", "PUT 100 MiB", "GET 100 MiB"]


def test_user_and_system_time_of_a_process_are_told_apart() -> None:
    before, own, after = processors.used_ms(os.getpid()), os.times(), processors.used_ms(os.getpid())
    known = (own.user + own.children_user, own.system + own.children_system)
    tick_ms = 1000 / os.sysconf("SC_CLK_TCK")
    for low, seconds, high in zip(before, known, after, strict=True):
        assert low - tick_ms <= 1000 * seconds <= high + tick_ms


def test_processor_time_is_told_of_the_proxy_and_of_all_object_servers() -> None:
    turns = [
        {("proxy", "user"): own, ("proxy", "system"): 2.0, ("object", "user"): 3.0, ("object", "system"): 4.0}
        for own in (1.0, 5.0)
    ]
    found = {("GET", "6+3"): turns, ("PUT", "3 copies"): turns[:1]}
    assert list(processors.reported(found, scheme_of("6+3"), 100)) == [
        Measured("PUT of 100 MiB, 3 copies, proxy, user", "ms", (1.0,)),
        Measured("PUT of 100 MiB, 3 copies, proxy, system", "ms", (2.0,)),
        Measured("PUT of 100 MiB, 3 copies, 9 object servers, user", "ms", (3.0,)),
        Measured("PUT of 100 MiB, 3 copies, 9 object servers, system", "ms", (4.0,)),
        Measured("GET of 100 MiB, 6+3, proxy, user", "ms", (1.0, 5.0)),
        Measured("GET of 100 MiB, 6+3, proxy, system", "ms", (2.0, 2.0)),
        Measured("GET of 100 MiB, 6+3, 9 object servers, user", "ms", (3.0, 3.0)),
        Measured("GET of 100 MiB, 6+3, 9 object servers, system", "ms", (4.0, 4.0)),
    ]


def test_a_percentile_is_that_of_the_nearest_rank() -> None:
    found = Readings()
    assert found.p99() is None
    found.seconds = [float(number) for number in range(200, 0, -1)]
    assert found.p99() == 198.0


def test_bytes_read_of_a_disk_are_told_only_of_a_disk() -> None:
    assert read_bytes(Path("/proc")) is None


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = start_cluster(tmp_path)
    try:
        yield found
    finally:
        found.stop()


def test_small_objects_are_read_at_even_intervals_while_something_else_is_done(cluster: Cluster) -> None:
    client = Client(cluster.endpoint, cluster.user, cluster.key)
    reader = Reader(Target(f"{cluster.endpoint}{client.base}", client.token))
    reader.warm()
    began = time.monotonic()
    with reader.reading() as found:
        while len(found.seconds) < 5:
            time.sleep(0.01)
    assert time.monotonic() - began >= 0.2, "four intervals lie between five reads"
    cluster.kill("object-1", "object-2", "object-3", "object-4")
    with pytest.raises(RuntimeError, match="a read beside the rebuild failed"), reader.reading():
        pass
