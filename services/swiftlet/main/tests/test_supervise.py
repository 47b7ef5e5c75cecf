"""The supervisor, with small programs in the services' place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swiftlet.main.commands.standalone import supervise
from swiftlet.main.commands.standalone.plan import ServicePlan
from swiftlet.main.commands.standalone.supervise import Signals, StartFailed, Supervisor
from swiftlet.testing.ports import free_ports
from swiftlet.web.tests.conftest import alive, eventually

PROGRAM = """
import http.server, signal, sys, threading, time
port, mode, trace = int(sys.argv[1]), sys.argv[2], sys.argv[3]
if mode == "fails":
    sys.exit("no disk today")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if mode == "unready" else 200)
        self.end_headers()
        self.wfile.write(b"waiting for rings")
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
def end(*_):
    with open(trace, "a") as file:
        file.write(f"{port}\\n")
    threading.Thread(target=server.shutdown).start()
signal.signal(signal.SIGTERM, signal.SIG_IGN if mode == "stubborn" else end)
server.serve_forever()
"""


@pytest.fixture
def signals() -> Iterator[Signals]:
    signals = Signals()
    with signals.caught():
        yield signals


class Program:
    """A process that runs `PROGRAM` in the place of a service."""

    def __init__(self, plan: ServicePlan) -> None:
        command = [sys.executable, "-c", PROGRAM, str(plan.port), plan.settings["mode"], str(plan.log.parent / "trace")]
        with plan.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0)
        self.pid = self._process.pid

    @property
    def exitcode(self) -> int | None:
        return self._process.poll()


@pytest.fixture
def plans(tmp_path: Path) -> Callable[..., list[ServicePlan]]:
    def make(**kinds: str) -> list[ServicePlan]:
        return [
            ServicePlan(name, name, port, tmp_path / f"{name}.yaml", tmp_path / f"{name}.log", {"mode": mode}, port)
            for name, mode, port in zip(kinds, kinds.values(), free_ports(len(kinds)), strict=True)
        ]

    return make


def ask_to_end(after: Callable[[], bool]) -> threading.Thread:
    def wait_and_ask() -> None:
        eventually(after)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=wait_and_ask)
    thread.start()
    return thread


def test_services_start_and_end_in_the_reverse_order(
    plans: Callable[..., list[ServicePlan]], signals: Signals, tmp_path: Path
) -> None:
    services = plans(storage="works", proxy="works")
    supervisor = Supervisor(services, signals, start=Program)
    assert supervisor.start()
    pids = supervisor.pids()
    assert set(pids) == {"storage", "proxy"}
    supervisor.stop(10)
    assert not any(alive(pid) for pid in pids.values())
    assert (tmp_path / "trace").read_text().split() == [str(services[1].port), str(services[0].port)]


def test_a_dead_service_comes_back(plans: Callable[..., list[ServicePlan]], signals: Signals) -> None:
    said: list[str] = []
    supervisor = Supervisor(plans(storage="works"), signals, start=Program, say=said.append)
    assert supervisor.start()
    first = supervisor.pids()["storage"]
    os.kill(first, signal.SIGKILL)
    thread = ask_to_end(lambda: supervisor.pids().get("storage", first) != first)
    supervisor.watch()
    thread.join()
    assert "storage ended with -9; starting it again" in said[0]
    supervisor.stop(10)


def test_a_dead_service_stays_dead_when_told_so(plans: Callable[..., list[ServicePlan]], signals: Signals) -> None:
    said: list[str] = []
    supervisor = Supervisor(plans(a="works", b="works"), signals, start=Program, restart=False, say=said.append)
    assert supervisor.start()
    os.kill(supervisor.pids()["a"], signal.SIGKILL)
    thread = ask_to_end(lambda: bool(said))
    supervisor.watch()
    thread.join()
    assert set(supervisor.pids()) == {"b"}
    supervisor.stop(10)


def test_a_signal_starts_what_has_ended(plans: Callable[..., list[ServicePlan]], signals: Signals) -> None:
    said: list[str] = []
    supervisor = Supervisor(plans(a="works", b="works"), signals, start=Program, restart=False, say=said.append)
    assert supervisor.start()
    before = supervisor.pids()
    os.kill(before["a"], signal.SIGKILL)

    def is_back() -> bool:
        if supervisor.pids().get("a") is None:
            os.kill(os.getpid(), signal.SIGUSR1)
        return supervisor.pids().get("a", before["a"]) != before["a"]

    thread = ask_to_end(is_back)
    supervisor.watch()
    thread.join()
    assert len(said) == 1, "it died once"
    assert supervisor.pids()["b"] == before["b"]
    supervisor.stop(10)


def test_a_service_that_can_not_start_is_quoted(plans: Callable[..., list[ServicePlan]], signals: Signals) -> None:
    supervisor = Supervisor(plans(good="works", bad="fails"), signals, start=Program)
    with pytest.raises(StartFailed, match=r"bad ended with exit code 1(.|\n)*no disk today"):
        supervisor.start()
    supervisor.stop(10)


def test_a_service_that_is_never_ready_is_named(
    plans: Callable[..., list[ServicePlan]], signals: Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "READY_WITHIN_S", 1.5)
    supervisor = Supervisor(plans(slow="unready"), signals, start=Program)
    with pytest.raises(StartFailed, match=r"slow is not ready: (waiting for rings|no answer)"):
        supervisor.start()
    supervisor.stop(10)


def test_asking_during_the_start_ends_it(plans: Callable[..., list[ServicePlan]], signals: Signals) -> None:
    supervisor = Supervisor(plans(slow="unready"), signals, start=Program)
    thread = ask_to_end(lambda: bool(supervisor.pids()))
    assert not supervisor.start()
    thread.join()
    supervisor.stop(10)
    assert signals.ended == 1


def test_what_does_not_end_is_killed(plans: Callable[..., list[ServicePlan]], signals: Signals) -> None:
    supervisor = Supervisor(plans(deaf="stubborn"), signals, start=Program)
    assert supervisor.start()
    pid = supervisor.pids()["deaf"]
    began = time.monotonic()
    supervisor.stop(0.3)
    assert not alive(pid)
    assert time.monotonic() - began < 10


def test_a_killed_supervisor_takes_its_services_along() -> None:
    code = (
        "import os, subprocess, sys; "
        "child = subprocess.Popen([sys.executable, '-c', 'import os, sys, time; "
        "sys.path.insert(0, sys.argv[2]); from swiftlet.web.parent import end_with_parent; "
        "end_with_parent(int(sys.argv[1])); print(os.getpid(), flush=True); time.sleep(60)', "
        "str(os.getpid()), sys.argv[1]]); child.wait()"
    )
    sources = str(Path(__file__).parents[3])
    parent = subprocess.Popen([sys.executable, "-c", code, sources], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait(10)
    parent.stdout.close()
    eventually(lambda: not alive(child))
