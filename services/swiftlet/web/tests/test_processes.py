"""Processes: draining, crashes of workers, a taken port, metrics of several workers."""

from __future__ import annotations

import http.client
import itertools
import os
import signal
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog

from swiftlet.web.tests.conftest import Service, alive, eventually

Start = Callable[..., Service]


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return str(answer.read().decode())


def refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        return False  # It came in the moment in which the listener closed.
    return False


@pytest.mark.parametrize("workers", [1, 2])
def test_a_request_in_flight_finishes_while_new_connections_are_refused(start: Start, workers: int) -> None:
    service = start(workers)
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
    connection.request("GET", "/slow?s=1.5")
    answer = connection.getresponse()
    assert answer.read(6) == b"begun "
    service.process.send_signal(signal.SIGTERM)
    eventually(lambda: refused(service.port))
    assert service.process.poll() is None
    assert answer.read() == b"done"
    assert service.process.wait(20) == 0
    assert '"the service is draining"' in service.logged()
    connection.close()


def test_idle_connections_do_not_hold_up_the_end(start: Start) -> None:
    service = start()
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
    connection.request("GET", "/pid")
    connection.getresponse().read()
    assert service.stop() == 0
    connection.close()


def test_a_second_signal_cuts_what_is_in_flight(start: Start) -> None:
    service = start()
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
    connection.request("GET", "/slow?s=60")
    answer = connection.getresponse()
    service.process.send_signal(signal.SIGTERM)
    eventually(lambda: refused(service.port))
    service.process.send_signal(signal.SIGTERM)
    with pytest.raises(http.client.IncompleteRead):
        answer.read()
    assert service.process.wait(20) == 0
    connection.close()


def test_a_crashed_worker_is_replaced_and_its_queue_taken_over(start: Start) -> None:
    service = start(2)
    before = {get(f"{service.url}/pid") for _ in range(40)}
    assert len(before) == 2
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        get(f"{service.url}/die")
    # No connection is refused or reset while the successor starts: they wait in the dead worker's queue.
    after = {get(f"{service.url}/pid") for _ in range(40)}
    assert len(after) == 2
    assert len(after & before) == 1
    assert '"a worker ended unexpectedly and will be restarted"' in service.logged()
    assert service.stop() == 0


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where services make their temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def test_workers_do_not_outlive_a_killed_parent_and_nothing_is_left(start: Start, temporary: Path) -> None:
    service = start(2)
    pids = {int(get(f"{service.url}/pid")) for _ in range(40)}
    assert len(list(temporary.iterdir())) == 1, "the metrics that they share"
    service.process.kill()
    service.process.wait(20)
    eventually(lambda: not any(alive(pid) for pid in pids))
    assert list(temporary.iterdir()) == []


def test_a_service_that_is_ended_before_it_serves_leaves_nothing(start: Start, temporary: Path) -> None:
    service = start(2, settle=False)
    eventually(lambda: any(temporary.iterdir()))
    service.process.send_signal(signal.SIGTERM)
    service.process.wait(20)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_taken_port_is_named(start: Start, workers: int) -> None:
    first = start(2)
    second = start(workers, first.port)
    assert second.process.wait(20) == 1
    assert f"port {first.port} on 127.0.0.1 is in use" in second.logged()
    assert "choose another port" in second.logged()


def test_metrics_of_all_workers_add_up(start: Start) -> None:
    service = start(2)
    pids = [get(f"{service.url}/pid") for _ in range(30)]
    assert len(set(pids)) == 2
    counts = itertools.count(len(pids))

    def all_counted() -> bool:
        """Whether all earlier requests are counted, which they are a moment after their clients have the answer."""
        page = get(f"{service.url}/metrics")
        answered = f'swiftlet_http_requests_total{{method="GET",service="small",status="200"}} {next(counts)}.0'
        return answered in page and 'swiftlet_http_requests_in_flight{service="small"} 1.0' in page

    eventually(all_counted)
    assert service.stop() == 0


def test_a_worker_that_dies_over_and_over_ends_the_service() -> None:
    from swiftlet.web.sockets import listen_shared
    from swiftlet.web.workers import RestartPolicy, Workers

    def die(_sock: socket.socket) -> None:
        os._exit(3)

    sockets = listen_shared("127.0.0.1", 0, 2)
    restarts = RestartPolicy(first_pause_s=0.01, give_up_after=3)
    assert Workers(sockets, die, stop_s=5.0, restarts=restarts).run() == 1


def test_a_worker_that_can_not_run_as_it_is_set_up_is_not_tried_again(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from swiftlet.errors import SettingsError
    from swiftlet.web import workers
    from swiftlet.web.sockets import listen_shared
    from swiftlet.web.workers import Workers

    # Loggers keep the file that they first wrote to: in a test before this one, perhaps.
    monkeypatch.setattr(workers, "_log", structlog.wrap_logger(structlog.PrintLogger(sys.stderr)))

    def refuse(_sock: socket.socket) -> None:
        raise SettingsError("users file: no such file")

    assert Workers(listen_shared("127.0.0.1", 0, 1), refuse, stop_s=5.0).run() == 1
    shown = capfd.readouterr()
    assert (shown.out + shown.err).count("users file: no such file") == 1
