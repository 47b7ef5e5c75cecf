"""Overwrites, deletions and reads of the same objects while servers are killed: is something acknowledged missing?

Each object has one writer, whose operations are numbered; the number is in the body and the metadata. A reader notes
the last acknowledged number before it asks, and the last one that was begun after it has the answer. What it is shown
has to be one of these: anything before is stale, and "not there" is right only if one of them is a deletion.
"""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from e2e.standalone.wire import Client


@dataclass
class Name:
    """One object, its operations so far, and how many of them are known to be done."""

    name: str
    operations: list[str] = field(default_factory=lambda: ["DELETE"])
    """`PUT` or `DELETE`, by number; the object was not there at first."""
    acknowledged: int = 0
    certain: bool = True
    """Whether nothing was begun after the last acknowledged operation that may count or not."""


class Connection:
    """Keeps a connection; status 0 when the server ended it."""

    def __init__(self, client: Client) -> None:
        """With the client's token."""
        parts = urlsplit(client.endpoint)
        self._client = client
        self._http = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)

    def call(self, method: str, path: str, body: bytes | None = None, **metadata: str) -> tuple[int, bytes, str | None]:
        """Status, body, and the number in the metadata."""
        headers = {"X-Auth-Token": self._client.token}
        headers.update({f"X-Object-Meta-{name}": value for name, value in metadata.items()})
        try:
            self._http.request(method, f"{self._client.base}/{path}", body=body, headers=headers)
            response = self._http.getresponse()
            return response.status, response.read(), response.headers.get("X-Object-Meta-Number")
        except (OSError, http.client.HTTPException):
            self._http.close()
            return 0, b"", None

    def close(self) -> None:
        self._http.close()


class Load:
    """Writers and readers, each a thread with a connection, until there were so many reads."""

    def __init__(
        self,
        client: Client,
        container: str,
        pause_s: float,
        writers: int = 3,
        readers: int = 5,
        names: int = 12,
        seed: int = 0,
    ) -> None:
        """`names` for each writer; each client pauses between two requests."""
        self._pause_s = pause_s
        self._client = client
        self._container = container
        self._names = [[Name(f"{writer}-{number}") for number in range(names)] for writer in range(writers)]
        self._readers = readers
        self._seed = seed
        self._end = threading.Event()
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.wrong: list[str] = []
        self.reads = 0

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def _write(self, own: list[Name], chooser: random.Random) -> None:
        connection = Connection(self._client)
        while not self._end.wait(self._pause_s):
            name = chooser.choice(own)
            method = chooser.choices(["PUT", "POST", "DELETE"], [6, 2, 1])[0]
            there = name.certain and name.operations[name.acknowledged] == "PUT"
            path = f"{self._container}/{name.name}"
            if method == "POST":
                if there:
                    status, _, _ = connection.call("POST", path, b"", number=str(name.acknowledged))
                    self._judge_write(method, name, status)
                continue
            number = len(name.operations)
            name.operations.append(method)
            name.certain = False
            if method == "PUT":
                status, _, _ = connection.call("PUT", path, f"{number} ".encode() * 50, number=str(number))
            else:
                status, _, _ = connection.call("DELETE", path)
            if status in (201, 204, 404):
                name.acknowledged, name.certain = number, True
            self._judge_write(method, name, status, was_there=there)
        connection.close()

    def _judge_write(self, method: str, name: Name, status: int, *, was_there: bool = True) -> None:
        self._count(f"{method} {status}")
        if status == 404 and was_there:
            self.wrong.append(f"{method} of {name.name} ({name.acknowledged}) answered 404")

    def _read(self, chooser: random.Random) -> None:
        connection = Connection(self._client)
        every = [name for own in self._names for name in own]
        while not self._end.wait(self._pause_s):
            name, method = chooser.choice(every), chooser.choices(["GET", "HEAD", "LIST"], [16, 4, 1])[0]
            if method == "LIST":
                status, _, _ = connection.call("HEAD", self._container)
                if status == 404:
                    self.wrong.append("HEAD of the container answered 404")
            else:
                least = name.acknowledged
                status, body, number = connection.call(method, f"{self._container}/{name.name}")
                shown = body.split(b" ", 1)[0].decode() if method == "GET" and status == 200 else number
                self._judge_read(method, name, least, status, shown)
            self._count(f"{method} {status}")
            with self._lock:
                self.reads += 1
        connection.close()

    def _judge_read(self, method: str, name: Name, least: int, status: int, shown: str | None) -> None:
        begun = name.operations[least:]
        if status == 200 and int(shown or -1) < least:
            self.wrong.append(f"{method} of {name.name} showed {shown}, {least} was acknowledged")
        if status == 404 and "DELETE" not in begun:
            self.wrong.append(f"{method} of {name.name} answered 404, {least} was acknowledged")

    def run(self, disturb: Callable[[], None], times: int, reads: int, within_s: float) -> float:
        """Disturb the store so often, and until there were so many reads or the time is over; the seconds it took."""
        writers = [(self._write, (own, random.Random(self._seed + at))) for at, own in enumerate(self._names)]
        readers = [(self._read, (random.Random(self._seed + 1000 + at),)) for at in range(self._readers)]
        threads = [threading.Thread(target=target, args=args) for target, args in writers]
        threads += [threading.Thread(target=target, args=args) for target, args in readers]
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        try:
            while (times > 0 or self.reads < reads) and time.monotonic() < begun + within_s:
                disturb()
                times -= 1
        finally:
            self._end.set()
            for thread in threads:
                thread.join()
        return time.monotonic() - begun
