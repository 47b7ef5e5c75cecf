"""A real store on free ports in a directory of its own, for end-to-end tests and benchmarks.

Services that die stay dead (`--no-restart`), so that a test decides when one is away: `kill`, `start`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from swiftlet.main.commands.standalone.plan import NATIVE_PORT_OFFSET

SOURCES = Path(__file__).parents[2] / "services"
START_WITHIN_S = 300.0
END_WITHIN_S = 180.0
PROVED_WITHIN_S = 300.0
"""On a machine with much else to do; each takes seconds on another one."""
FRONT_VARIABLE = "E2E_FRONT"
"""Environment variable: `1` or `0`, whether proxies have a native front; not set: the default."""
_POLL_S = 0.02


@dataclass(slots=True)
class Cluster:
    """A running store of local processes."""

    endpoint: str
    auth_url: str
    user: str
    key: str
    data: Path
    services: dict[str, dict[str, Any]]
    """By name (`proxy`, `metadata`, `replicator`, `object-1`.., `container-1`..): pid, port, url, log, command."""
    process: subprocess.Popen[bytes]
    ready_s: float
    """Seconds from the command to readiness."""
    ready_file: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of all services, in addition to those that the store itself sets."""

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by service, of those that run."""
        known: dict[str, dict[str, Any]] = json.loads(self.ready_file.read_text())["services"]
        return {name: service["pid"] for name, service in known.items() if service["pid"] is not None}

    def settings_file(self, service: str) -> Path:
        """The file from which a service takes its settings when it starts."""
        command = self.services[service]["command"]
        return Path(command[command.index("--config") + 1])

    def set(self, service: str, **sections: Mapping[str, Any]) -> None:
        """Change settings of a service, which take effect when it is started again."""
        file = self.settings_file(service)
        settings = yaml.safe_load(file.read_text())
        for section, values in sections.items():
            settings[section] = {**settings.get(section, {}), **values}
        file.write_text(yaml.safe_dump(settings))

    def url(self, service: str) -> str:
        """Base URL of a service."""
        return str(self.services[service]["url"])

    def management_url(self, service: str) -> str:
        """Base URL of a service's metrics and status report."""
        return str(self.services[service]["management_url"])

    def log(self, service: str) -> str:
        """What a service has logged."""
        return Path(self.services[service]["log"]).read_text()

    @contextmanager
    def changed(self, service: str, **sections: Mapping[str, Any]) -> Iterator[None]:
        """Within the block a service runs with other settings."""
        file = self.settings_file(service)
        before = file.read_text()
        self.kill(service)
        self.set(service, **sections)
        self.start(service)
        try:
            yield
        finally:
            self.kill(service)
            file.write_text(before)
            self.start(service)

    def kill(self, *services: str, number: int = signal.SIGKILL) -> None:
        """Send services a signal, all at once, and wait until nobody listens on their ports."""
        for service in services:
            os.kill(self.pids[service], number)
        for service in services:
            ports = {urlsplit(self.services[service][url]).port or 0 for url in ("url", "management_url")}
            _wait(lambda ports=ports: not any(map(_listens, ports)), END_WITHIN_S, f"{service} to end")

    def start(self, *services: str) -> None:
        """Start killed services again, all at once, and wait until they are ready. No others may have ended."""
        others = self.services.keys() - services
        _wait(lambda: self.pids.keys() == others, END_WITHIN_S, f"{services}, and no others, to end")
        self.process.send_signal(signal.SIGUSR1)
        for service in services:
            log_file = self.services[service]["log"]
            _wait(partial(is_ready, self.url(service)), START_WITHIN_S, f"{service} to be ready; see {log_file}")

    def unproved(self, service: str) -> list[object]:
        """Return what an object server's status report says of each of its devices: None of one that is proved."""
        with urllib.request.urlopen(self.management_url(service) + "/statusz", timeout=30) as answer:
            return [device["unproved"] for device in json.load(answer)["devices"].values()]

    def wait_until_proved(self) -> None:
        """Wait until no device may lack an acknowledged write: until then reads ask several of them."""
        for service in self.services:
            if service.startswith("object-"):
                is_proved = partial(lambda name: self.unproved(name) == [None], service)
                _wait(is_proved, PROVED_WITHIN_S, f"the device of {service} to be proved")

    def stop(self) -> int:
        """Stop the store as Ctrl-C would; the supervisor's exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(END_WITHIN_S)


def start_cluster(
    data: Path, *options: str, port: int | None = None, settings: Mapping[str, str] | None = None
) -> Cluster:
    """Start a store on `data` and wait until it is ready; `settings` as services take them from the environment."""
    data.mkdir(parents=True, exist_ok=True)
    ready_file = data / "ready.json"
    ready_file.unlink(missing_ok=True)
    proxy_port, base_port = port or free_port(), free_port(NATIVE_PORT_OFFSET)
    command = [sys.executable, "-m", "swiftlet.main", "standalone", "--data", str(data), "--port", str(proxy_port)]
    command += ["--base-port", str(base_port), "--no-restart", "--quiet", "--ready-file", str(ready_file), *options]
    command += end_with_us()
    chosen = {**_front(), **(settings or {})}
    began = time.monotonic()
    output = data / "standalone.log"
    with output.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**environment(), **chosen})
    try:
        _wait(lambda: ready_file.exists() or process.poll() is not None, START_WITHIN_S, "the store to be ready")
        if not ready_file.exists():
            raise AssertionError(f"the store did not start:\n{output.read_text()}")
    except BaseException:
        process.kill()
        process.wait()
        raise
    ready_s = time.monotonic() - began
    known = json.loads(ready_file.read_text())
    return Cluster(
        known["endpoint"],
        known["auth_url"],
        known["user"],
        known["key"],
        Path(known["data"]),
        known["services"],
        process,
        ready_s,
        ready_file,
        chosen,
    )


def end_with_us() -> list[str]:
    """Arguments that make a store or a service end when this process does, even when this process is killed."""
    return ["--parent", str(os.getpid())]


def environment() -> dict[str, str]:
    """The environment of a service: without settings of the caller's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SWIFTLET_")}
    return {**kept, "PYTHONPATH": str(SOURCES)}


def _front() -> dict[str, str]:
    front = os.environ.get(FRONT_VARIABLE)
    return {} if front is None else {"SWIFTLET_PROXY__FRONT": front, "SWIFTLET_PROXY__FRONT_PUT": front}


def free_port(*offsets: int) -> int:
    """A port with room above it and above those that are so much higher.

    They lie below those of `swiftlet.testing.ports`, which other tests use at the same time.
    """
    blocks = deque(range(10_000, 20_000 - max(offsets, default=0), 20))
    blocks.rotate(-os.getpid())
    for port in blocks:
        firsts = (port, *(port + offset for offset in offsets))
        if all(map(_reserve, firsts)) and not any(_listens(first + more) for first in firsts for more in range(16)):
            return port
    raise AssertionError("no free ports")


def _reserve(port: int) -> bool:
    """Whether neither this process nor another one that lives was given a port before, by the name of a socket.

    The services of another process that begins at the same time don't listen yet.
    """
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        mark.bind(f"\0swiftlet-tests-port-{port}")
    except OSError:
        mark.close()
        return False
    mark.detach()  # The name is taken until this process ends.
    return True


def _listens(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def is_ready(url: str) -> bool:
    """Whether the service with this URL says that it is ready."""
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _wait(condition: Any, within_s: float, what: str) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {within_s:g} s for {what}"
        time.sleep(_POLL_S)


def rclone_environment(cluster: Cluster) -> dict[str, str]:
    """Variables by which rclone knows the cluster as `sw:`, and repeats nothing by itself."""
    return {
        "RCLONE_CONFIG_SW_TYPE": "swift",
        "RCLONE_CONFIG_SW_AUTH": cluster.auth_url,
        "RCLONE_CONFIG_SW_USER": cluster.user,
        "RCLONE_CONFIG_SW_KEY": cluster.key,
        "RCLONE_CONFIG_SW_AUTH_VERSION": "1",
        "RCLONE_RETRIES": "1",
        "RCLONE_LOW_LEVEL_RETRIES": "1",
    }
