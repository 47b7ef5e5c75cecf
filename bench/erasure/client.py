"""One client that writes and reads large objects."""

from __future__ import annotations

import itertools
import random
import secrets
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection
from urllib.parse import urlsplit

from swiftlet.bench.target import Target

MIB = 1 << 20
_BUFFER = 4 * MIB


class Objects:
    """Objects in one container, written and read by one client one after the other."""

    def __init__(self, target: Target, count: int, size: int, policy: str = "") -> None:
        """Nothing is stored yet; the container is to have the policy, or the default one."""
        parts = urlsplit(target.storage_url)
        self._path = f"{parts.path}/erasure-{secrets.token_hex(4)}"
        self._host, self._port = parts.hostname or "", parts.port
        self._headers = {"X-Auth-Token": target.token}
        self._policy = {"X-Storage-Policy": policy} if policy else {}
        self._names = [f"{self._path}/{number}" for number in range(count)]
        self.size = size
        self.bytes = count * size

    def create(self) -> None:
        """Create the container, with its policy."""
        connection = HTTPConnection(self._host, self._port, timeout=300)
        self._ask(connection, self._path, b"", self._policy)
        connection.close()

    def put(self) -> None:
        """Store all objects in the container, one after the other."""
        body = random.Random(self.size).randbytes(self.size)
        connection = HTTPConnection(self._host, self._port, timeout=300)
        for name in self._names:
            self._ask(connection, name, body, {})
        connection.close()

    def _ask(self, connection: HTTPConnection, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        connection.request("PUT", path, body, {**self._headers, **headers})
        answer = connection.getresponse()
        if answer.status not in {201, 202, 204}:
            raise RuntimeError(f"PUT {path}: {answer.status} {answer.read(300)!r}")
        answer.read()

    def get(self) -> float:
        """Read all of them; return bytes in a second."""
        began = time.monotonic()
        for _ in zip(self._names, self.endlessly(), strict=False):
            pass
        return self.bytes / (time.monotonic() - began)

    def endlessly(self) -> Iterator[None]:
        """Read one after the other, and the first again after the last; yield after each."""
        connection = HTTPConnection(self._host, self._port, timeout=300)
        buffer = memoryview(bytearray(_BUFFER))
        try:
            for name in itertools.cycle(self._names):
                connection.request("GET", name, headers=self._headers)
                answer = connection.getresponse()
                read = 0
                while count := answer.readinto(buffer):
                    read += count
                if answer.status != 200 or read != self.size:
                    raise RuntimeError(f"GET {name}: {answer.status}, {read} bytes")
                yield
        finally:
            connection.close()
