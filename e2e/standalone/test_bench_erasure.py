"""`bench.erasure.objects`: its workloads, its tables, and what it tells of processor time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.erasure import disk, processors
from bench.erasure.client import Objects
from bench.erasure.disk import read_bytes, wait_until_quiet
from bench.erasure.meanwhile import Reader, Readings
from bench.erasure.objects import Extent, Found, chosen_of, ratios, scheme_of, table, workloads
from bench.erasure.progress import Sample, looking, span
from bench.erasure.space import Space, space_of
from bench.erasure.stores import stores
from bench.micro import Measured
from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.wire import Client
from swiftlet.bench.target import Target
from swiftlet.store.native import NativeStore
from swiftlet.testing.store.conformance import key_of, put

MIB = 1 << 20


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


def test_stores_are_chosen_by_parts_of_their_names() -> None:
    known = stores(scheme_of("6+3"))
    assert chosen_of(known, []) == list(known)
    assert chosen_of(known, ["swiftlet, 6"]) == [known[1]]
    assert chosen_of(known, ["OpenStack", "Swiftlet, 6+3"]) == list(known[1:])
    with pytest.raises(ValueError, match="no store is called 'ceph'; there are"):
        chosen_of(known, ["Swiftlet", "ceph"])


def test_what_a_volume_has_reserved_is_not_stored(tmp_path: Path) -> None:
    (tmp_path / "volumes").mkdir()
    with (tmp_path / "volumes" / "00000001").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 8 * MIB)
        file.write(b"x" * 10_000)
    assert space_of(tmp_path) == Space(12_288, 8 * MIB - 12_288)
    (tmp_path / "large").write_bytes(b"x" * 5000)
    (tmp_path / "volumes" / "00000002").touch()
    assert space_of(tmp_path) == Space(12_288 + 8192, 8 * MIB - 12_288)


def test_of_a_store_what_it_has_written_counts_and_nothing_is_reserved_once_it_is_opened_again(tmp_path: Path) -> None:
    store = NativeStore(tmp_path)
    for number in range(20):
        put(store, key_of(number), 1, bytes([number + 1]) * 300_000)
    [volume] = store.volumes()
    space = space_of(tmp_path / "volumes")
    assert volume.size <= space.stored <= volume.size + MIB + 4096, "at most a mebibyte of zeros was written ahead"
    assert space.reserved > MIB
    store.close()
    store = NativeStore(tmp_path)
    space = space_of(tmp_path / "volumes")
    assert 20 * 300_000 <= space.stored <= volume.size + 4096
    assert space.reserved == 0
    store.close()


def test_a_rebuild_lasts_from_when_it_could_begin_until_nearly_all_is_there() -> None:
    sizes = [0, 5, 10, 500, 900, 981, 990, 1000, 1000, 1000]
    samples = [Sample(float(at), size, 10 * at, at) for at, size in enumerate(sizes)]
    assert span(samples, 1.5) == (samples[1], samples[5])
    assert span(samples, 9.0) == (samples[2], samples[5]), "bytes came before the store was said to have started"
    assert span(samples[7:], 8.0) is None


def test_a_device_is_looked_at_until_the_block_ends() -> None:
    with looking(lambda at_s: Sample(at_s, 0, None, 0)) as samples:
        while len(samples) < 4:
            time.sleep(0.01)
    assert [sample.at_s for sample in samples] == sorted(sample.at_s for sample in samples)

    seen, failed = list[Sample](), threading.Event()

    def fail(at_s: float) -> Sample:
        if seen:
            failed.set()
            raise OSError("input/output error")
        seen.append(Sample(at_s, 0, None, 0))
        return seen[0]

    def look_until_it_fails() -> None:
        with looking(fail):
            failed.wait(60)

    with pytest.raises(RuntimeError, match="the device could not be looked at: input/output error"):
        look_until_it_fails()


@pytest.mark.timeout(600)
def test_an_empty_device_is_whole_again_when_the_store_has_proved_it(tmp_path: Path) -> None:
    coded = stores(scheme_of("4+2"))[1]
    with coded.start(tmp_path) as stored:
        objects = Objects(stored.running.target, 8, 6 * MIB)
        objects.create()
        objects.put()
        had = stored.space_of_first()
        assert stored.space().stored >= 1.5 * objects.bytes
        assert stored.count == 7
        stored.replace()
        assert stored.space_of_first() == Space()
        stored.begin()
        assert stored.rebuild(0)
        got = stored.space_of_first()
    assert had.stored > 3 * MIB
    assert 0.8 * had.stored <= got.stored <= 1.2 * had.stored


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


def test_a_store_begins_when_the_disk_was_asked_for_little(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = iter([0, 8 << 20, 16 << 20, (16 << 20) + 5, 99 << 20, 199 << 20])
    monkeypatch.setattr(disk, "QUIET_S", 0.0)
    monkeypatch.setattr(disk, "_asked_bytes", lambda _folder: next(asked))
    assert wait_until_quiet(tmp_path)
    assert next(asked) == 99 << 20, "that was the first time that little was asked for"
    assert not wait_until_quiet(tmp_path, within_s=0)


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
