"""Runs of the native generator against a store in this process."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from swiftlet.bench.errors import BenchError
from swiftlet.bench.processes import Watch
from swiftlet.bench.results import Result
from swiftlet.bench.runner import Options, Progress, run
from swiftlet.bench.scenario import Scenario
from swiftlet.bench.table import notes
from swiftlet.bench.target import Keys, Target
from swiftlet.bench.tests.results import result as result_of
from swiftlet.bench.tests.results import step as step_of
from swiftlet.bench.tests.store import Store


def measured(store: Store, document: dict[str, Any], **options: Any) -> Result:
    target = Target(f"{store.endpoint}/v1/AUTH_test", "token")
    return run(Scenario.model_validate(document), target, Options(prefix="b", **options))


def failures(result: Result) -> dict[str, int]:
    found: dict[str, int] = {}
    for step in result.steps:
        for kind, one in step.total.failures.items():
            found[kind] = found.get(kind, 0) + one.count
    return found


def test_every_operation_is_measured_and_nothing_is_left(store: Store, document: dict[str, Any]) -> None:
    told: list[Progress] = []
    result = measured(store, document, runs=2, report=told.append, watch=Watch([os.getpid()]))
    assert [(step.run, step.connections) for step in result.steps] == [(1, 1), (1, 3), (2, 1), (2, 3)]
    assert failures(result) == {}
    for step in result.steps:
        assert step.total.succeeded == step.total.latency.count == step.all_succeeded == 40
        assert step.usage is not None
        assert step.usage.rss_bytes > 1 << 20
        assert step.points
        assert sum(one.bytes for one in step.operations.values()) > 0
    # The system counts in hundredths of a second.
    assert sum(step.usage.cpu_s for step in result.steps if step.usage is not None) > 0
    assert {name for step in result.steps for name in step.operations} == set(document["operations"])
    assert store.tokens == {"token"}
    assert not store.objects
    assert not store.containers
    assert Result.model_validate_json(result.model_dump_json()) == result


def test_s3_is_signed_and_its_buckets_are_made_and_deleted(store: Store, document: dict[str, Any]) -> None:
    document["operations"]["list"] = 0
    store.depth = 2
    target = Target(store.endpoint, "", api="s3", keys=Keys("key", "secret", "here"))
    result = run(Scenario.model_validate(document), target, Options(prefix="b"))
    assert failures(result) == {}
    assert {path for method, path in store.asked if method == "PUT"} >= {"/b-000000", "/b-000001"}
    assert all("Credential=key/" in one and "/here/s3/aws4_request" in one for one in store.signatures)
    assert not store.objects
    assert not store.containers


def test_files_need_no_containers_and_have_no_listings(store: Store, document: dict[str, Any]) -> None:
    store.depth = 3
    target = Target(f"{store.endpoint}/top", "", api="files")
    with pytest.raises(BenchError, match="a store of plain files has no listings to measure"):
        run(Scenario.model_validate(document), target, Options(prefix="b"))
    document["operations"]["list"] = 0
    result = run(Scenario.model_validate(document), target, Options(prefix="b"))
    assert failures(result) == {}
    assert {path.count("/") for _, path in store.asked} == {3}
    assert not store.objects


def test_the_use_of_named_processes_is_told_by_name(store: Store, document: dict[str, Any]) -> None:
    names = {os.getpid(): "store"}
    (step, *_) = measured(store, document, watch=Watch(names, names)).steps
    assert step.usage is not None
    part = step.usage.parts["store"]
    assert (part.cpu_s, part.processes) == (step.usage.cpu_s, step.usage.processes)
    assert 1 << 20 < part.rss_bytes <= step.usage.rss_bytes


def test_what_processes_have_written_since_the_begin_is_told_by_name(
    document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = {1: (100, 1000), 2: (0, 7)}

    class Process:
        def __init__(self, pid: int) -> None:
            self.pid = pid
            self.oneshot = nullcontext
            self.children = lambda recursive: [Process(2)] if pid == 1 and recursive else []
            self.cpu_times = lambda: SimpleNamespace(user=1.0, system=0.5)
            self.memory_info = lambda: SimpleNamespace(rss=10)

        def io_counters(self) -> SimpleNamespace:
            read, written = counted[self.pid]
            return SimpleNamespace(read_bytes=read, write_bytes=written)

    monkeypatch.setattr("swiftlet.bench.processes.psutil.Process", Process)
    counted[3] = (5, 50)
    watch = Watch([1, 3], {1: "object", 3: "proxy"})
    watch.begin()
    counted.update({1: (104, 1600), 2: (1, 37), 3: (5, 58)})
    usage = watch.usage()
    assert (usage.read_bytes, usage.written_bytes) == (4 + 1, 600 + 30 + 8)
    assert {name: part.written_bytes for name, part in usage.parts.items()} == {"object": 630, "proxy": 8}
    watched = step_of(usage=usage)
    told = " ".join(notes(result_of(document, [watched])))
    assert "5 B read from disks, 638 B written" in told


def test_an_open_loop_and_objects_that_are_kept(store: Store, document: dict[str, Any]) -> None:
    document.pop("closed")
    document["open"] = {"per_second": [200], "connections": 4, "arrivals": "even"}
    document["operations"] = {"create": 1}
    (step,) = measured(store, document, keeps=True).steps
    assert step.per_second == 200
    assert step.operations["create"].succeeded == 40
    assert len(store.objects) == 10 + 40
    assert {path.rpartition("/")[0] for path in store.objects} == {f"/v1/AUTH_test/b-00000{n}" for n in (0, 1)}


def test_a_store_that_corrupts_is_found(store: Store, document: dict[str, Any]) -> None:
    store.change = lambda body: bytes([*body[:-1], body[-1] ^ 1]) if body else body
    document["operations"] = {"read": 1}
    document["sizes"] = {"fixed": 100}
    result = measured(store, document)
    assert failures(result) == {"corrupt": 80}
    assert "byte 99 of 100" in result.steps[0].operations["read"].failures["corrupt"].example
    document["verify"] = 0.25
    quarter = measured(store, document)
    assert failures(quarter) == {"corrupt": 2 * 10}
    assert [step.operations["read"].compared for step in quarter.steps] == [0, 0]
    document["verify"] = False
    assert failures(measured(store, document)) == {}


def test_a_share_of_reads_is_compared_and_told(store: Store, document: dict[str, Any]) -> None:
    document |= {"operations": {"read": 1}, "sizes": {"fixed": 100_000}, "verify": 0.25}
    result = measured(store, document)
    assert failures(result) == {}
    for step in result.steps:
        read = step.operations["read"]
        assert (read.succeeded, read.compared, step.moved_bytes) == (40, 10, 40 * 100_000)
    assert any("Of 80 reads, the bytes of 20 were compared" in note for note in notes(result))
    document["verify"] = 1
    assert not any("were compared" in note for note in notes(measured(store, document)))


def test_failures_are_told_by_kind(store: Store, document: dict[str, Any]) -> None:
    store.fault = lambda method, _path, number: 503 if method == "GET" and number % 2 else None
    document["operations"] = {"read": 1}
    result = measured(store, document)
    assert set(failures(result)) == {"status 503"}
    assert not store.objects


def test_a_ramp_ends_when_nothing_is_gained(store: Store, document: dict[str, Any]) -> None:
    document["closed"] = {"ramp": {"first": 1, "last": 64, "gain": 9}}
    assert [step.connections for step in measured(store, document).steps] == [1, 2]


def test_preparing_that_fails_ends_the_run_and_leaves_nothing(store: Store, document: dict[str, Any]) -> None:
    store.fault = lambda method, path, _: 507 if method == "PUT" and path.endswith("3") else None
    with pytest.raises(BenchError, match=r"storing 10 objects failed: 1 times status 507 \(PUT /v1/AUTH_test/b-"):
        measured(store, document)
    assert not store.objects
    assert not store.containers


def test_a_store_that_is_away_is_told_first(document: dict[str, Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    target = Target(f"http://127.0.0.1:{port}/v1/AUTH_test", "")
    with pytest.raises(
        BenchError, match=r"^creating containers failed: 2 times no connection .* are left in the store"
    ):
        run(Scenario.model_validate(document), target, Options(prefix="b"))


def test_containers_are_deleted_as_soon_as_that_is_possible(store: Store, document: dict[str, Any]) -> None:
    refused: list[str] = []

    def fault(method: str, path: str, _: int) -> int | None:
        if method == "DELETE" and path.count("/") == 3 and len(refused) < 3:
            refused.append(path)
            return 409
        return None

    store.fault = fault
    measured(store, document)
    assert len(refused) == 3
    assert not store.containers


def test_one_stop_ends_a_run_with_what_there_is(store: Store, document: dict[str, Any]) -> None:
    told: list[str] = []
    document.pop("count")
    document["duration_s"] = 3600
    document["closed"] = {"connections": [3, 4]}
    result = measured(
        store,
        document,
        report=lambda one: told.append(one.what),
        stops=lambda: int("run 1 of 1, 3 connections" in told),
    )
    assert result.is_cut_short
    (step,) = result.steps
    assert step.ended_early == "cancelled"
    assert step.total.succeeded > 0
    assert not store.objects
    assert not store.containers


def test_a_step_that_suffices_ends_and_the_next_one_begins(store: Store, document: dict[str, Any]) -> None:
    asked: list[str] = []
    document.pop("count")
    document["duration_s"] = 3600
    document["closed"] = {"connections": [3, 4]}

    def suffices(one: Progress) -> bool:
        asked.append(one.what)
        return one.succeeded > 0

    result = measured(store, document, suffices=suffices)
    assert not result.is_cut_short
    assert [step.connections for step in result.steps] == [3, 4]
    assert all(step.total.succeeded > 0 and step.window_s < 3600 for step in result.steps)
    # Nobody is asked while objects are stored or deleted.
    assert set(asked) == {"run 1 of 1, 3 connections", "run 1 of 1, 4 connections"}
    assert not store.objects


def test_a_second_stop_leaves_the_objects(store: Store, document: dict[str, Any]) -> None:
    stopped = threading.Event()

    def fault(method: str, _path: str, _number: int) -> None:
        if method == "DELETE":
            stopped.wait(10)

    store.fault = fault
    document["operations"] = {"read": 1}
    document.pop("count")
    document["duration_s"] = 3600

    def stops() -> int:
        return 2

    with pytest.raises(BenchError, match=r"interrupted while deleting objects; containers b-\* are left"):
        measured(store, document, stops=lambda: 0 if not store.objects else stops())
    stopped.set()
    assert store.objects


def test_the_generator_says_what_it_refuses(store: Store, document: dict[str, Any]) -> None:
    target = Target(f"{store.endpoint}/v1/AUTH_test", "to\nken")
    with pytest.raises(BenchError, match="control characters"):
        run(Scenario.model_validate(document), target, Options(prefix="b"))


@pytest.mark.parametrize(
    ("url", "message"),
    [("ftp://a/v1", "is no URL of a store"), ("http://", "is no URL"), ("http://a:99999/v1", "has no address")],
)
def test_targets_that_are_none(document: dict[str, Any], url: str, message: str) -> None:
    with pytest.raises(BenchError, match=message):
        run(Scenario.model_validate(document), Target(url, ""), Options(prefix="b"))


def test_a_process_that_is_not_there() -> None:
    with pytest.raises(BenchError, match="no process 2147483647"):
        Watch([2**31 - 1])
