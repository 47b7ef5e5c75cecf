"""HTTPS against plain HTTP through the native front: small reads by many clients, and one large read.

    .venv/bin/python -m bench.dataplane.tls DIRECTORY [--rounds 3] [--seconds 8]

One standalone store, and three more proxies of one worker each beside it: without TLS, with it, and with TLS by Python
(`proxy.front: false`). Measured in turns: wrk with 20 connections for GETs of 10 KiB, curl for a GET of 1 GiB. Beside
it stand the clients' own processor time, and what one core encrypts by OpenSSL.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from swiftclient.client import Connection

from e2e.standalone.cluster import SOURCES, Cluster, end_with_us, start_cluster
from swiftlet.main.tests.certificates import make_pair

CLIENTS = 20
SMALL, LARGE = 10_240, 1 << 30
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def clients_s() -> float:
    """Processor time of all clients that have ended, in s."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Proxy:
    """One more proxy of a store."""

    def __init__(self, cluster: Cluster, directory: Path, scheme: str, front: bool = True) -> None:
        self.scheme = scheme
        self.name = scheme if front else f"{scheme} by Python"
        with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
            self.port, management_port = one.getsockname()[1], other.getsockname()[1]
        settings = yaml.safe_load((cluster.data / "etc" / "proxy.yaml").read_text())
        settings["proxy"] |= {"port": self.port, "management_port": management_port, "workers": 1, "front": front}
        if scheme == "https":
            make_pair(directory, "bench")
            files = {"tls_cert_file": str(directory / "bench.crt"), "tls_key_file": str(directory / "bench.key")}
            settings["proxy"] |= files
        config = directory / f"{self.name}.yaml"
        config.write_text(yaml.safe_dump(settings))
        with (directory / f"{self.name}.log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "swiftlet.main", "proxy", "--config", str(config), *end_with_us()],
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(SOURCES)},
            )
        ready = f"http://127.0.0.1:{management_port}/readyz"
        for _ in range(600):
            try:
                urllib.request.urlopen(ready, timeout=1).close()
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("the proxy does not become ready")

    @property
    def cpu_s(self) -> float:
        """Processor time that it has taken so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * _TICK_S

    def small(self, path: str, token: str, seconds: int) -> tuple[float, float, float]:
        """GETs a second, and processor time of the proxy and of wrk for each, in ms."""
        url, before, clients = f"{self.scheme}://127.0.0.1:{self.port}{path}", self.cpu_s, clients_s()
        command = ["wrk", "-t1", f"-c{CLIENTS}", f"-d{seconds}s", "-H", f"X-Auth-Token: {token}", url]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "Non-2xx" not in told, told
        count = re.search(r"(\d+) requests in", told)
        rate = re.search(r"Requests/sec:\s+([\d.]+)", told)
        assert count is not None
        assert rate is not None
        each = 1000 / int(count[1])
        return float(rate[1]), (self.cpu_s - before) * each, (clients_s() - clients) * each

    def large(self, path: str, token: str) -> tuple[float, float, float]:
        """MB a second of one GET, and processor time of the proxy and of curl for it, in s."""
        url, before, clients = f"{self.scheme}://127.0.0.1:{self.port}{path}", self.cpu_s, clients_s()
        begun = time.monotonic()
        command = ["curl", "-sk", "-o", "/dev/null", "-w", "%{size_download}", "-H", f"X-Auth-Token: {token}", url]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert int(told) == LARGE, told
        return LARGE / 1e6 / (time.monotonic() - begun), self.cpu_s - before, clients_s() - clients


@contextmanager
def proxies(cluster: Cluster, directory: Path) -> Iterator[list[Proxy]]:
    """Start the proxies that are compared, one for each way to speak with clients, and end them afterwards."""
    made: list[Proxy] = []
    try:
        made += (Proxy(cluster, directory, scheme) for scheme in ("http", "https"))
        made.append(Proxy(cluster, directory, "https", front=False))
        yield made
    finally:
        for one in made:
            one.process.terminate()
            one.process.wait(30)


def encrypted_by_one_core() -> str:
    """MB a second by OpenSSL."""
    command = ["openssl", "speed", "-elapsed", "-evp", "aes-128-gcm", "-bytes", "16384", "-seconds", "2"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return told.strip().splitlines()[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where the data goes; about 4 GB")
    parser.add_argument("--rounds", type=int, default=3, help="the medians count (default 3)")
    parser.add_argument("--seconds", type=int, default=8, help="length of each (default 8)")
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    cluster = start_cluster(arguments.directory / "store")
    try:
        swift = Connection(authurl=cluster.auth_url, user=cluster.user, key=cluster.key, retries=0)
        url, token = swift.get_auth()
        swift.put_container("tls")
        swift.put_object("tls", "small", os.urandom(SMALL))
        with Path("/dev/urandom").open("rb") as source:
            swift.put_object("tls", "large", source, content_length=LARGE)
        # Reads of devices that were just made are Python's for a while.
        cluster.wait_until_proved()
        path = url[url.index("/v1/") :] + "/tls/"
        with proxies(cluster, arguments.directory) as all_of_them:
            small: dict[str, list[tuple[float, float, float]]] = {one.name: [] for one in all_of_them}
            large: dict[str, list[tuple[float, float, float]]] = {one.name: [] for one in all_of_them}
            for one in all_of_them:
                one.small(path + "small", token, 1)
            for _ in range(arguments.rounds):
                for one in all_of_them:
                    small[one.name].append(one.small(path + "small", token, arguments.seconds))
            for _ in range(arguments.rounds):
                for one in all_of_them:
                    large[one.name].append(one.large(path + "large", token))
    finally:
        cluster.stop()
    for name, rounds in small.items():
        shown = ", ".join(f"{rate:,.0f} ({proxy:.3f}, {client:.3f})" for rate, proxy, client in rounds)
        print(f"GET 10 KiB {name}: requests/s (CPU ms each: proxy, wrk) {shown}")
    ratios = [tls[0] / plain[0] for plain, tls in zip(small["http"], small["https"], strict=True)]
    print(f"https by http, median: {statistics.median(ratios):.0%}")
    for name, rounds in large.items():
        shown = ", ".join(f"{rate:,.0f} ({proxy:.2f}, {client:.2f})" for rate, proxy, client in rounds)
        print(f"GET 1 GiB {name}: MB/s (CPU s: proxy, curl) {shown}")
    print(f"OpenSSL on one core, in 1000 bytes a second: {encrypted_by_one_core()}")


if __name__ == "__main__":
    main()
