"""The API over HTTPS: a proxy of several workers beside a running store, asked by python-swiftclient and by curl."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import yaml
from swiftclient.client import Connection

from e2e.standalone.cluster import Cluster, end_with_us, environment, free_port
from swiftlet.client import V1, Client, ConnectionFailed, Options
from swiftlet.main.commands.cli import run, swiftlet
from swiftlet.main.tests.certificates import PairFiles, make_pair

WORKERS = 3
WITHIN_S = 60.0
START_WITHIN_S = 180.0
"""For a proxy to start: three Python processes on a machine that is busy."""


def eventually(condition: Callable[[], bool], within_s: float = WITHIN_S) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)


class TlsProxy:
    """One more proxy of a store, that speaks HTTPS."""

    def __init__(self, cluster: Cluster, directory: Path, workers: int = WORKERS) -> None:
        self.pairs = [make_pair(directory, name) for name in ("first", "second")]
        self.files = PairFiles(directory, self.pairs[0])
        self.trusted = directory / "trusted.pem"
        self.trusted.write_bytes(b"".join(pair.cert for pair in self.pairs))
        # Not of those that connections are given: a proxy that is started again has to find them free.
        self.port, self.management_port = free_port(), free_port()
        settings = yaml.safe_load((cluster.data / "etc" / "proxy.yaml").read_text())
        tls = {"tls_cert_file": str(self.files.cert), "tls_key_file": str(self.files.key), "tls_check_interval_s": 0.1}
        settings["proxy"] |= {"port": self.port, "management_port": self.management_port, "workers": workers, **tls}
        config = directory / "proxy.yaml"
        config.write_text(yaml.safe_dump(settings))
        self.log = directory / "proxy.log"
        self._command = [sys.executable, "-m", "swiftlet.main", "proxy", "--config", str(config), *end_with_us()]
        self._environment = {**environment(), **cluster.settings}
        self.start()

    def start(self) -> None:
        """Start its process, also after that was killed, and wait until it is ready."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stderr=log, env=self._environment)
        eventually(lambda: self.process.poll() is not None or self.answers("/readyz") == "200", START_WITHIN_S)
        assert self.process.poll() is None, self.log.read_text()[-2000:]

    def kill(self) -> None:
        """End it at once, and wait until its workers have ended, which hold the ports for as long."""
        workers = psutil.Process(self.process.pid).children()
        self.process.kill()
        self.process.wait()
        _, left = psutil.wait_procs(workers, WITHIN_S)
        assert not left

    def stop(self) -> int:
        """Ask it to end; its exit code."""
        self.process.terminate()
        return self.process.wait(WITHIN_S)

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    def answers(self, path: str, *options: str) -> str:
        """The status that curl is given, "000" when there is none."""
        command = ["curl", "--silent", "--cacert", str(self.trusted), "--output", "-", "--write-out", "\n%{http_code}"]
        done = subprocess.run([*command, *options, self.url + path], capture_output=True, text=True, check=False)
        return done.stdout.rsplit("\n", 1)[-1]

    def context(self) -> ssl.SSLContext:
        """Return a context that trusts this certificate alone."""
        return ssl.create_default_context(cafile=str(self.trusted))

    def connection(self) -> http.client.HTTPSConnection:
        """A connection of its own."""
        return http.client.HTTPSConnection("localhost", self.port, timeout=WITHIN_S, context=self.context())

    def answered_by_front(self) -> int:
        """Requests that one worker's front has answered: the workers share the port of this page."""
        url = f"http://127.0.0.1:{self.management_port}/statusz"
        with urllib.request.urlopen(url, timeout=WITHIN_S) as told:
            return int(json.load(told)["front"]["answered"])

    def names(self, connections: int) -> set[bytes]:
        """The certificates that so many new connections are given."""
        context = self.context()
        found = set()
        for _ in range(connections):
            with (
                socket.create_connection(("127.0.0.1", self.port), 10) as sock,
                context.wrap_socket(sock, server_hostname="localhost") as wrapped,
            ):
                der = wrapped.getpeercert(binary_form=True)
                assert der is not None
                found.add(ssl.DER_cert_to_PEM_cert(der).strip().encode())
        return found


@pytest.fixture
def proxy(cluster: Cluster, tmp_path: Path) -> Iterator[TlsProxy]:
    running = TlsProxy(cluster, tmp_path)
    yield running
    assert running.stop() == 0


def test_a_client_stores_and_reads_over_https_while_the_certificate_changes(cluster: Cluster, proxy: TlsProxy) -> None:
    body = os.urandom(3 << 20)
    swift = Connection(
        authurl=f"{proxy.url}/auth/v1.0", user=cluster.user, key=cluster.key, retries=0, cacert=str(proxy.trusted)
    )
    swift.put_container("tls")
    swift.put_object("tls", "before", body)
    url, _ = swift.get_auth()
    assert url.startswith(f"{proxy.url}/v1/")

    first, second = proxy.pairs
    assert proxy.names(4) == {first.cert.strip()}
    # Half a pair first: it must not be taken by any worker.
    proxy.files.put(second.cert, first.key)
    eventually(lambda: proxy.log.read_text().count("can't be used") == WORKERS)
    assert proxy.names(4 * WORKERS) == {first.cert.strip()}
    proxy.files.put(second.cert, second.key)
    eventually(lambda: proxy.log.read_text().count("the TLS certificate has been loaded") == WORKERS)
    assert proxy.names(4 * WORKERS) == {second.cert.strip()}

    # The client's connection was made with the first certificate and goes on.
    swift.put_object("tls", "after", body)
    assert swift.get_object("tls", "before")[1] == swift.get_object("tls", "after")[1] == body
    swift.close()


def test_a_store_is_measured_over_https(
    cluster: Cluster, proxy: TlsProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("ST_AUTH", f"{proxy.url}/auth/v1.0"), ("ST_USER", cluster.user), ("ST_KEY", cluster.key)):
        monkeypatch.setenv(name, value)
    changes = ["--set", "count=40", "--set", "objects=5", "--set", "closed.connections=3", "--set", "warm_up_s=0"]
    command = ["bench", "run", "small-download", *changes, "--ca-file"]
    assert run(swiftlet, [*command, str(proxy.trusted)]) == 0
    other = tmp_path / "other.pem"
    other.write_bytes(proxy.pairs[1].cert)
    assert run(swiftlet, [*command, str(other)]) == 1


def test_old_versions_and_plain_http_are_refused(proxy: TlsProxy) -> None:
    assert proxy.answers("/healthz", "--tls-max", "1.2") == "200"
    assert proxy.answers("/healthz", "--tls-max", "1.1") == "000"
    plain = subprocess.run(
        ["curl", "--silent", "--write-out", "%{http_code}", f"http://localhost:{proxy.port}/healthz"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert plain.stdout == "000"
    assert proxy.answers("/healthz") == "200"


@pytest.fixture
def stored(cluster: Cluster, proxy: TlsProxy) -> tuple[str, dict[str, str]]:
    """The path of an object of 10 KiB, and the headers that may read and write it."""
    swift = Connection(
        authurl=f"{proxy.url}/auth/v1.0", user=cluster.user, key=cluster.key, retries=0, cacert=str(proxy.trusted)
    )
    url, token = swift.get_auth()
    swift.put_container("tls")
    swift.put_object("tls", "small", b"x" * 10_240)
    swift.close()
    # Until then reads are Python's.
    cluster.wait_until_proved()
    return f"{urllib.parse.urlsplit(url).path}/tls/small", {"X-Auth-Token": token}


def test_certificates_change_under_load(proxy: TlsProxy, stored: tuple[str, dict[str, str]]) -> None:
    path, headers = stored
    ended, failed, counts = threading.Event(), [], [0] * 8

    def ask(which: int) -> None:
        connection = proxy.connection()
        while not ended.is_set():
            # Half of the clients keep their connections, half make a new one each time.
            if which % 2:
                connection.close()
            try:
                connection.request("GET", path, headers=headers)
                answer = connection.getresponse()
                is_right = answer.status == 200 and answer.read() == b"x" * 10_240
            except OSError as error:
                failed.append(repr(error))
                return
            if not is_right:
                failed.append(str(answer.status))
                return
            counts[which] += 1
        connection.close()

    clients = [threading.Thread(target=ask, args=(which,)) for which in range(len(counts))]
    for client in clients:
        client.start()
    for number in range(1, 7):
        before = list(counts)
        pair = proxy.pairs[number % 2]
        proxy.files.put(pair.cert, pair.key)
        eventually(
            lambda: proxy.log.read_text().count("the TLS certificate has been loaded") == number * WORKERS  # noqa: B023
        )
        eventually(lambda: bool(failed) or all(now > then for now, then in zip(counts, before, strict=True)))  # noqa: B023
    ended.set()
    for client in clients:
        client.join(WITHIN_S)
    assert not failed
    assert proxy.names(4 * WORKERS) == {proxy.pairs[0].cert.strip()}
    eventually(lambda: proxy.answered_by_front() > 0)


def test_sessions_are_resumed_by_all_workers(proxy: TlsProxy) -> None:
    for newest in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = proxy.context()
        context.maximum_version = newest
        session, resumed = None, []
        for _ in range(4 * WORKERS):
            with (
                socket.create_connection(("127.0.0.1", proxy.port), 10) as sock,
                context.wrap_socket(sock, server_hostname="localhost", session=session) as wrapped,
            ):
                # With TLS 1.3 the ticket comes after the handshake.
                wrapped.sendall(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
                assert wrapped.recv(100).startswith(b"HTTP/1.1 200 ")
                resumed.append(wrapped.session_reused)
                session = wrapped.session
        assert resumed == [False] + [True] * (4 * WORKERS - 1), newest


def test_large_objects_go_both_ways(proxy: TlsProxy, stored: tuple[str, dict[str, str]]) -> None:
    path, headers = stored
    large, size = path.replace("small", "large"), 80 << 20
    block = os.urandom(1 << 20)
    digest = hashlib.md5(block * (size >> 20), usedforsecurity=False).hexdigest()
    connection = proxy.connection()

    def pieces() -> Iterator[bytes]:
        for _ in range(size >> 20):
            yield block

    # A length that is known, and then one that is not.
    for more in ({"Content-Length": str(size), "ETag": digest}, {"ETag": digest}):
        is_chunked = "Content-Length" not in more
        more = more | ({"Transfer-Encoding": "chunked"} if is_chunked else {})
        connection.request("PUT", large, pieces(), headers | more, encode_chunked=is_chunked)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (201, b"")
        connection.request("GET", large, headers=headers)
        answer, found = connection.getresponse(), hashlib.md5(usedforsecurity=False)
        while piece := answer.read(1 << 20):
            found.update(piece)
        assert found.hexdigest() == digest
    connection.request("DELETE", large, headers=headers)
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (204, b"")
    connection.close()


# Python 3.11 leaves a socket open whose peer was gone before the handshake began; nobody else can close it.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning")
def test_a_proxy_that_ends_breaks_nobodys_request(proxy: TlsProxy, stored: tuple[str, dict[str, str]]) -> None:
    path, headers = stored
    counts, failed, ended = [0] * 8, [], threading.Event()

    def ask(which: int) -> None:
        """Small reads are the front's, and writes of a kind that it does not know are Python's."""
        method, body = ("PUT", b"y" * 100_000) if which % 2 else ("GET", None)
        connection = proxy.connection()
        while not ended.is_set():
            try:
                if connection.sock is None:
                    connection.connect()
            except OSError:
                # Nothing listens any more, or whoever was about to accept it has ended.
                connection.close()
                if proxy.process.poll() is not None:
                    return
                continue
            try:
                connection.request(method, f"{path}{which}" if body else path, body, headers)
                answer = connection.getresponse()
                if answer.status != (201 if body else 200) or len(answer.read()) != (0 if body else 10_240):
                    failed.append(str(answer.status))
                counts[which] += 1
            except http.client.RemoteDisconnected:
                connection.close()  # It was idle, and ended in order.
            except (OSError, http.client.HTTPException) as error:
                failed.append(f"{method} {counts[which]} {error!r}")
                return

    clients = [threading.Thread(target=ask, args=(which,)) for which in range(len(counts))]
    for client in clients:
        client.start()
    eventually(lambda: all(count > 20 for count in counts))
    proxy.process.terminate()
    assert proxy.process.wait(WITHIN_S) == 0
    ended.set()
    for client in clients:
        client.join(WITHIN_S)
    assert not failed


def test_the_client_of_this_project_checks_certificates(proxy: TlsProxy, cluster: Cluster) -> None:
    data = os.urandom(5 << 20)
    login = V1(auth_url=f"{proxy.url}/auth/v1.0", user=cluster.user, key=cluster.key)
    pieces = Options(ca_file=str(proxy.trusted), segments_above_bytes=2 << 20, segment_bytes=1 << 20)
    with Client(login, pieces) as client:
        assert client.storage_url().startswith("https://")
        client.create_container("tls-client")
        assert client.put("tls-client", "object", data).segments == 5
        assert client.get("tls-client", "object").data == data
    with Client(login, Options(insecure=True, retries=0)) as client:
        assert client.get("tls-client", "object").data == data
    with Client(login, Options(retries=0)) as client, pytest.raises(ConnectionFailed, match="certificate"):
        client.get("tls-client", "object")
