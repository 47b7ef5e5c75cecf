"""A coordinator and workers over loopback, against a store in this process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from swiftlet.bench.errors import BenchError
from swiftlet.bench.results import Result
from swiftlet.bench.runner import Options, Progress, run
from swiftlet.bench.scenario import Scenario
from swiftlet.bench.target import Target
from swiftlet.bench.tests.store import Store
from swiftlet.bench.workers import channel as channels
from swiftlet.bench.workers.channel import Channel, greet
from swiftlet.bench.workers.coordinator import MAX_WORKERS, Plan, check_plan, coordinate
from swiftlet.bench.workers.worker import Runs, work

TOKEN = "a token of enough length"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


class Crew:
    """Workers in threads, each with what came of it."""

    def __init__(self, listener: socket.socket, store: Store) -> None:
        self._address, self.target = listener.getsockname(), Target(f"{store.endpoint}/v1/AUTH_test", "token")
        self._threads: list[threading.Thread] = []
        self.came: dict[str, Result | BenchError] = {}

    def connected(self, name: str, token: str = TOKEN) -> Channel:
        return greet(socket.create_connection(self._address), token, name)

    def start(self, name: str, runs: Runs = run, token: str = TOKEN) -> None:
        def do() -> None:
            try:
                channel = self.connected(name, token)
                with closing(channel):
                    self.came[name] = work(channel, self.target, lambda _: None, runs=runs)
            except BenchError as error:
                self.came[name] = error

        self._threads.append(threading.Thread(target=do))
        self._threads[-1].start()

    def end(self) -> None:
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()


@pytest.fixture
def crew(listener: socket.socket, store: Store) -> Iterator[Crew]:
    made = Crew(listener, store)
    yield made
    made.end()


@pytest.fixture
def plan(document: dict[str, Any]) -> Plan:
    return Plan(Scenario.model_validate(document), workers=2, prefix="b", runs=2, wait_s=20)


def test_workers_begin_each_step_together_and_their_steps_become_one(
    listener: socket.socket, crew: Crew, plan: Plan, store: Store
) -> None:
    begun: list[tuple[str, int]] = []
    together = threading.Barrier(2)

    def runs(name: str) -> Runs:
        def noted(scenario: Scenario, target: Target, options: Options) -> Result:
            def gate() -> None:
                options.gate()
                begun.append((name, len(begun) // 2))
                # Nobody passes this alone: both were let through, and none of them is a step ahead.
                together.wait(20)

            return run(scenario, target, replace(options, gate=gate))

        return noted

    for name in ("one", "two"):
        crew.start(name, runs(name))
    result = coordinate(plan, listener, TOKEN)
    crew.end()
    assert [sorted(name for name, number in begun if number == step) for step in range(4)] == [["one", "two"]] * 4
    assert [(step.run, step.workers, step.connections) for step in result.steps] == [
        (1, 2, 2),
        (1, 2, 6),
        (2, 2, 2),
        (2, 2, 6),
    ]
    for number, step in enumerate(result.steps):
        own = [came.steps[number] for came in crew.came.values() if isinstance(came, Result)]
        assert step.total.succeeded == sum(one.total.succeeded for one in own) == 80
        assert step.total.latency.count == 80
    assert result.lost == ()
    assert result.target == f"{store.endpoint}/v1/AUTH_test"
    assert sorted(result.environment["workers"]) == ["one", "two"]
    assert not store.objects
    assert not store.containers


def test_a_worker_that_is_lost_in_mid_run_is_named_and_the_others_go_on(
    listener: socket.socket, crew: Crew, plan: Plan
) -> None:
    def go() -> None:
        channel = crew.connected("goes")
        steps = 0

        def breaks(scenario: Scenario, target: Target, options: Options) -> Result:
            def gate() -> None:
                nonlocal steps
                options.gate()
                steps += 1
                if steps == 2:
                    channel.close()

            return run(scenario, target, replace(options, gate=gate))

        with pytest.raises(BenchError, match="the coordinator is lost"):
            work(channel, crew.target, lambda _: None, runs=breaks)

    crew.start("stays")
    thread = threading.Thread(target=go)
    thread.start()
    result = coordinate(plan, listener, TOKEN)
    thread.join(30)
    crew.end()
    assert [step.workers for step in result.steps] == [2, 1, 1, 1]
    (lost,) = result.lost
    assert lost.startswith("goes, in step 2 of 4, ")
    assert "the connection" in lost
    assert isinstance(crew.came["stays"], Result)


def test_a_worker_that_is_silent_is_lost(
    listener: socket.socket, crew: Crew, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "LOST_AFTER_S", 3.0)
    crew.start("speaks")
    silent: list[Channel] = []
    thread = threading.Thread(target=lambda: silent.append(crew.connected("silent")))
    thread.start()
    result = coordinate(plan, listener, TOKEN)
    thread.join()
    assert [step.workers for step in result.steps] == [1, 1, 1, 1]
    assert "silent, before step 1 of 4" in result.lost[0]
    assert "nothing was heard for too long" in result.lost[0]
    silent[0].close()


def test_who_has_another_token_is_refused_and_not_counted(listener: socket.socket, crew: Crew, plan: Plan) -> None:
    crew.start("stranger", token="another token of some length")
    said: list[str] = []

    def report(progress: Any) -> None:
        said.append(progress.what)
        if "refused" in progress.what:
            crew.start("one")
            crew.start("two")

    result = coordinate(replace(plan, report=report), listener, TOKEN)
    crew.end()
    assert sorted(result.environment["workers"]) == ["one", "two"]
    assert said[0] == "refused a connection: the worker has another token"
    assert "the worker has another token" in str(crew.came["stranger"])


def test_a_coordinator_without_the_token_is_found_out(listener: socket.socket, crew: Crew) -> None:
    crew.start("one")
    sock, _ = listener.accept()
    with pytest.raises(BenchError, match="another token"):
        channels.welcome(sock, "a coordinator's own token", 0)
    sock.close()
    crew.end()
    assert "refused" in str(crew.came["one"])


def test_workers_that_do_not_come_are_not_waited_for_longer(listener: socket.socket, crew: Crew, plan: Plan) -> None:
    crew.start("one")
    with pytest.raises(BenchError, match=r"1 of 2 workers came within 2 s \(one\); start the others"):
        coordinate(replace(plan, wait_s=2.0), listener, TOKEN)
    crew.end()
    assert "the connection" in str(crew.came["one"])


def test_ctrl_c_at_the_coordinator_ends_all_and_leaves_nothing(
    listener: socket.socket, crew: Crew, plan: Plan, document: dict[str, Any], store: Store
) -> None:
    endless = Scenario.model_validate({**document, "count": 10**9})
    asked: list[int] = []

    def report(progress: Any) -> None:
        if "run 1" in progress.what and not asked:
            asked.append(1)

    for name in ("one", "two"):
        crew.start(name)
    chosen = replace(plan, scenario=endless, report=report, stops=lambda: len(asked))
    result = coordinate(chosen, listener, TOKEN)
    crew.end()
    assert result.is_cut_short
    assert [step.workers for step in result.steps] == [2]
    assert not store.objects


def test_a_worker_that_its_user_stops_is_named(listener: socket.socket, crew: Crew, plan: Plan) -> None:
    asked: list[int] = []

    def stopped(scenario: Scenario, target: Target, options: Options) -> Result:
        def report(progress: Progress) -> None:
            if progress.what.startswith("run 1"):
                asked.append(1)

        endless = scenario.model_copy(update={"count": 10**9})
        return run(endless, target, replace(options, report=report, stops=lambda: len(asked[:1])))

    crew.start("stays")
    crew.start("stops", stopped)
    result = coordinate(plan, listener, TOKEN)
    crew.end()
    (lost,) = result.lost
    assert lost.startswith("stops, ")
    assert lost.endswith("its user stopped it")
    # What it had done of the first step counts.
    assert [step.workers for step in result.steps] == [2, 1, 1, 1]


def test_a_worker_whose_store_refuses_says_why(listener: socket.socket, crew: Crew, plan: Plan, store: Store) -> None:
    store.fault = lambda method, path, number: 507 if method == "PUT" else None
    for name in ("one", "two"):
        crew.start(name)
    with pytest.raises(BenchError, match=r"nothing was measured: .*creating containers failed: .*507"):
        coordinate(plan, listener, TOKEN)


@pytest.mark.parametrize(
    ("change", "workers", "message"),
    [
        ({"closed": {"ramp": {"last": 8}}}, 2, r"closed\.ramp"),
        ({}, 0, "--workers"),
        ({}, MAX_WORKERS + 1, f"from 1 to {MAX_WORKERS}"),
    ],
)
def test_what_several_workers_can_not_do_is_refused(
    document: dict[str, Any], change: dict[str, Any], workers: int, message: str
) -> None:
    with pytest.raises(BenchError, match=message):
        check_plan(Scenario.model_validate({**document, **change}), workers)
