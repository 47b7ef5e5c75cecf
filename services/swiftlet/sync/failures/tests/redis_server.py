"""A real Redis of a test's own: on a free port, with a directory of its own, to be killed, stopped and started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from swiftlet.testing.ports import free_ports
from swiftlet.web.parent import end_with_parent

PASSWORD = "a password of the tests"
_DEADLINE_S = 20.0


class RedisServer:
    """Keeps nothing, as the one that the operator runs."""

    def __init__(self, root: Path, password: str | None = None, pair: tuple[Path, Path] | None = None) -> None:
        """Not started yet; `pair` are the files of a certificate and its key, with which it speaks TLS alone."""
        [self.port] = free_ports(1)
        self.url = f"{'redis' if pair is None else 'rediss'}://127.0.0.1:{self.port}"
        self.password = password
        self._root = root
        self._pair = pair
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns once it listens."""
        assert self._process is None
        command = ["redis-server", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        if self._pair is None:
            command += ["--port", str(self.port)]
        else:
            certificate, key = map(str, self._pair)
            command += ["--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "no"]
            command += ["--tls-cert-file", certificate, "--tls-key-file", key]
        if self.password is not None:
            command += ["--requirepass", self.password]
        ours = os.getpid()
        self._process = subprocess.Popen(
            command,
            cwd=self._root,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: end_with_parent(ours),
        )
        deadline = time.monotonic() + _DEADLINE_S
        while time.monotonic() < deadline:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return
            except OSError:
                time.sleep(0.01)
        raise TimeoutError("redis-server does not listen")

    def kill(self) -> None:
        """At once, and everything in it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def hang(self, hanging: bool) -> None:
        """Keep the connections open and answer nobody, or go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if hanging else signal.SIGCONT)

    def command(self, *words: str) -> str:
        """What Redis' own client prints."""
        done = subprocess.run(
            ["redis-cli", "-p", str(self.port), *words], capture_output=True, text=True, timeout=10, check=True
        )
        return done.stdout.strip()
