"""The API over HTTPS: a proxy of several workers beside a running store, asked by python-swiftclient and by curl."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from swiftclient.client import Connection

from e2e.standalone.cluster import SOURCES, Cluster, end_with_us
from swiftlet.main.tests.certificates import PairFiles, make_pair

WORKERS = 3
WITHIN_S = 30.0


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)


class TlsProxy:
    """One more proxy of a store, that speaks HTTPS."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.pairs = [make_pair(directory, name) for name in ("first", "second")]
        self.files = PairFiles(directory, self.pairs[0])
        self.trusted = directory / "trusted.pem"
        self.trusted.write_bytes(b"".join(pair.cert for pair in self.pairs))
        with socket.create_server(("127.0.0.1", 0)) as probe, socket.create_server(("127.0.0.1", 0)) as other:
            self.port, management_port = probe.getsockname()[1], other.getsockname()[1]
        settings = yaml.safe_load((cluster.data / "etc" / "proxy.yaml").read_text())
        tls = {"tls_cert_file": str(self.files.cert), "tls_key_file": str(self.files.key), "tls_check_interval_s": 0.1}
        settings["proxy"] |= {"port": self.port, "management_port": management_port, "workers": WORKERS, **tls}
        config = directory / "proxy.yaml"
        config.write_text(yaml.safe_dump(settings))
        self.log = directory / "proxy.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "swiftlet.main", "proxy", "--config", str(config), *end_with_us()],
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(SOURCES)},
            )
        eventually(lambda: self.answers("/readyz") == "200")

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    def answers(self, path: str, *options: str) -> str:
        """The status that curl is given, "000" when there is none."""
        command = ["curl", "--silent", "--cacert", str(self.trusted), "--output", "-", "--write-out", "\n%{http_code}"]
        done = subprocess.run([*command, *options, self.url + path], capture_output=True, text=True, check=False)
        return done.stdout.rsplit("\n", 1)[-1]

    def names(self, connections: int) -> set[bytes]:
        """The certificates that so many new connections are given."""
        context = ssl.create_default_context(cafile=str(self.trusted))
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
    running.process.terminate()
    assert running.process.wait(WITHIN_S) == 0


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
