"""Clients that write, copy, delete and read the same objects at random, and hold each answer to the model at once.

Some go away before they are answered, or in the middle of a body: the former may count or not, the latter must not.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import md5
from typing import Any
from urllib.parse import quote, urlsplit

from e2e.standalone.model_history import ABSENT, History, Operation, Outcome, Version, Versions, always
from e2e.standalone.wire import Answer, Client

CONTAINERS = 6
NAMES = 40
"""Objects in each container."""
BUSY = 4
"""How many names in each container get much of the requests, so that clients meet at them."""
POLICIES = ("Policy-0", "Policy-1")
"""The policies of the containers, in turns."""
CONNECTIONS = 3
"""Connections of each client, so that they reach both workers of the proxy."""
LEAVES = 0.03
"""Share of the writes whose client goes away."""
PATIENCE_S = 180.0
"""No request takes longer, whoever was killed, and however busy the machine is."""
NUMBER = "X-Object-Meta-Number"


class Connection:
    """Keeps a connection; the answer has status 0 when the server ended it."""

    def __init__(self, client: Client) -> None:
        """With the client's token."""
        parts = urlsplit(client.endpoint)
        self._client = client
        self._http = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)

    def _headers(self, headers: dict[str, str], body: bytes) -> dict[str, str]:
        return {"X-Auth-Token": self._client.token, "Content-Length": str(len(body)), **headers}

    def call(self, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> Answer:
        """One request about an object."""
        sent = self._headers(headers, body)
        try:
            self._http.request(method, f"{self._client.base}/{quote(path)}", body=body, headers=sent)
            response = self._http.getresponse()
            return Answer(response.status, dict(response.headers.items()), response.read())
        except (OSError, http.client.HTTPException):
            self._http.close()
            return Answer(0, {}, b"")

    def leave(self, method: str, path: str, headers: dict[str, str], body: bytes, sent: int) -> None:
        """Send a request with so many bytes of its body, and go away without its answer."""
        self._http.close()
        with contextlib.suppress(OSError, http.client.HTTPException):
            self._http.putrequest(method, f"{self._client.base}/{quote(path)}")
            for name, value in {
                "X-Auth-Token": self._client.token,
                "Content-Length": str(len(body)),
                **headers,
            }.items():
                self._http.putheader(name, value)
            self._http.endheaders(body[:sent])
        self._http.close()

    def close(self) -> None:
        self._http.close()


@dataclass
class Model:
    """The clients' combined knowledge of all objects."""

    histories: dict[str, History] = field(default_factory=dict)
    """By path, `container/object`; an object is only copied to one that stands behind it."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    counts: Counter[str] = field(default_factory=Counter)
    """Answers, by method and status."""
    wrong: list[str] = field(default_factory=list)
    may_be_behind: bool = False
    """Whether a read may show what was before: more processes may be away at a time than reads reckon with."""

    def allowed(self, path: str, begun: float, ended: float) -> Versions:
        """What somebody may see who asks at `begun` and has the answer at `ended`."""
        return self.histories[path].allowed(-math.inf if self.may_be_behind else begun, ended)

    @property
    def written(self) -> int:
        """Operations other than reads."""
        return sum(count for what, count in self.counts.items() if not what.startswith(("GET", "HEAD")))

    @property
    def unanswered(self) -> int:
        """Writes that failed, or that nobody waited for: they may count or not."""
        return sum(count for what, count in self.counts.items() if what.endswith((" 0", " 503", " left")))

    @property
    def containers(self) -> list[str]:
        """Return the names of all containers with objects of the model."""
        return sorted({path.partition("/")[0] for path in self.histories})


def new_model() -> Model:
    """Return a model of objects that do not exist yet."""
    forms = itertools.cycle(["o{}", "dir/o{}", "ö {}", "{}.txt"])
    names = [next(forms).format(number) for number in range(NAMES)]
    return Model({f"m{container}/{name}": History() for name in names for container in range(CONTAINERS)})


def make_containers(client: Client, model: Model) -> None:
    """Create the containers of the model, with all policies in turn."""
    for container, policy in zip(model.containers, itertools.cycle(POLICIES), strict=False):
        assert client.call("PUT", container, {"X-Storage-Policy": policy}).status == 201


def shown_by(answer: Answer) -> Version:
    """Return the object's state from the answer to a GET or HEAD."""
    headers = answer.headers
    return Version(
        headers["Etag"], int(headers["Content-Length"]), headers["Content-Type"], headers.get(NUMBER, "none")
    )


class Worker:
    """One client: a thread steps it."""

    def __init__(self, client: Client, model: Model, chooser: random.Random) -> None:
        """`chooser` decides what it does."""
        self._model = model
        self._chooser = chooser
        self._connections = [Connection(client) for _ in range(CONNECTIONS)]
        self._paths = list(model.histories)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def step(self) -> None:
        """Make one random operation."""
        does = [self.put, self.post, self.copy, self.delete, self.read]
        self._chooser.choices(does, [10, 6, 4, 3, 4])[0](self._path())

    def _path(self) -> str:
        busy = self._chooser.random() < 0.3
        return self._paths[self._chooser.randrange(BUSY * CONTAINERS if busy else len(self._paths))]

    def _call(self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"") -> Answer:
        begun = time.monotonic()
        answer = self._chooser.choice(self._connections).call(method, path, headers or {}, body)
        with self._model.lock:
            self._model.counts[f"{method} {answer.status}"] += 1
            if time.monotonic() - begun > PATIENCE_S:
                self._model.wrong.append(f"{method} of {path} was not answered within {PATIENCE_S:g} s")
        return answer

    def _begin(self, path: str, operation: Operation) -> Operation:
        with self._model.lock:
            return self._model.histories[path].begin(operation)

    def _end(self, operation: Operation, path: str, method: str, answer: Answer, done: set[int]) -> None:
        """Judge a write by its answer: one with a status in `done` counts."""
        with self._model.lock:
            at = time.monotonic()
            operation.end(at, Outcome.DONE if answer.status in done else Outcome.MAYBE)
            if answer.status not in done | {0, 404, 503}:
                self._model.wrong.append(f"{method} of {path} answered {answer.status}: {answer.text[:200]}")
            if answer.status == 404:
                self._must_allow(method, path, operation.begun, at, None)

    def _must_allow(self, method: str, path: str, begun: float, ended: float, version: Version | None) -> None:
        allowed = self._model.allowed(path, begun, ended)
        if version not in allowed:
            self._model.wrong.append(f"{method} of {path} showed {version}, allowed are {set(allowed)}")

    def put(self, path: str) -> None:
        """Put it, or put it over."""
        number, body = str(next(self._model.numbers)), self._body()
        content_type = self._chooser.choice(["text/plain", "image/png", f"put/{number}"])
        version = Version(md5(body, usedforsecurity=False).hexdigest(), len(body), content_type, number)
        operation = self._begin(path, Operation(time.monotonic(), always(version)))
        headers = {NUMBER: number, "Content-Type": content_type}
        if not self._leaves(operation, "PUT", path, headers, body):
            self._end(operation, path, "PUT", self._call("PUT", path, headers, body), {201})

    def _leaves(self, operation: Operation, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> bool:
        """Seldom: the request is sent, and nobody waits for its answer. In the middle of a body that is no request."""
        if self._chooser.random() >= LEAVES:
            return False
        is_cut = bool(body) and self._chooser.random() < 0.4
        sent = self._chooser.randrange(len(body)) if is_cut else len(body)
        self._chooser.choice(self._connections).leave(method, path, headers, body, sent)
        with self._model.lock:
            self._model.counts[f"{method} {'cut' if is_cut else 'left'}"] += 1
            if is_cut:
                operation.end(time.monotonic(), Outcome.NOTHING)
        return True

    def _body(self) -> bytes:
        """Mostly small; some are too large for one message, or for the native front."""
        least, most = self._chooser.choices([(0, 3000), (60_000, 200_000), (1_100_000, 1_500_000)], [90, 8, 2])[0]
        return self._chooser.randbytes(self._chooser.randrange(least, most))

    def post(self, path: str) -> None:
        """New metadata, every second time with a content type."""
        number = str(next(self._model.numbers))
        content_type = self._chooser.choice([None, f"posted/{number}"])
        operation = self._begin(path, Operation(time.monotonic(), None, number, content_type))
        headers = {NUMBER: number} | ({} if content_type is None else {"Content-Type": content_type})
        if not self._leaves(operation, "POST", path, headers):
            self._end(operation, path, "POST", self._call("POST", path, headers), {202})

    def delete(self, path: str) -> None:
        """Delete it: what was not found is deleted all the same."""
        operation = self._begin(path, Operation(time.monotonic(), always(None)))
        if not self._leaves(operation, "DELETE", path, {}):
            self._end(operation, path, "DELETE", self._call("DELETE", path), {204, 404})

    def copy(self, source: str) -> None:
        """Copy it to one that stands behind it, with its metadata and content type or with new ones."""
        behind = self._paths[self._paths.index(source) + 1 :]
        if not behind:
            return
        target, number = self._chooser.choice(behind), str(next(self._model.numbers))
        new: dict[str, Any] = {}
        if self._chooser.random() < 0.5:
            new["number"] = number
        if self._chooser.random() < 0.3:
            new["content_type"] = f"copied/{number}"
        told = {"number": NUMBER, "content_type": "Content-Type"}
        headers = {told[name]: value for name, value in new.items()}
        begun = time.monotonic()

        def copied(etag: str | None) -> Versions:
            found = self._model.allowed(source, begun, time.monotonic())
            there = [replace(version, **new) for version in found if version is not None]
            return frozenset(version for version in there if etag in (None, version.etag))

        operation = self._begin(target, Operation(begun, lambda: copied(None)))
        if self._chooser.random() < 0.5:
            answer = self._call("COPY", source, {"Destination": quote(target), **headers})
        else:
            answer = self._call("PUT", target, {"X-Copy-From": quote(source), **headers})
        self._end_copy(operation, source, target, answer, copied)

    def _end_copy(
        self,
        operation: Operation,
        source: str,
        target: str,
        answer: Answer,
        copied: Callable[[str | None], Versions],
    ) -> None:
        if answer.status == 404:
            with self._model.lock:
                operation.end(time.monotonic(), Outcome.NOTHING)
                self._must_allow("COPY", source, operation.begun, operation.ended, None)
            return
        with self._model.lock:
            versions = copied(answer.headers["Etag"].strip('"') if answer.status == 201 else None)
            operation.versions = always(*versions) if versions else always(*ABSENT)
            if not versions and answer.status == 201:
                self._model.wrong.append(f"COPY of {source} to {target} has made what it never was: {answer.headers}")
        self._end(operation, target, "COPY", answer, {201})

    def read(self, path: str) -> None:
        """GET or HEAD; any answer but 503 shows a state that is allowed."""
        method, begun = self._chooser.choice(["GET", "HEAD"]), time.monotonic()
        answer = self._call(method, path)
        if answer.status in (0, 503):
            return
        with self._model.lock:
            if answer.status not in (200, 404):
                self._model.wrong.append(f"{method} of {path} answered {answer.status}: {answer.text[:200]}")
            else:
                version = shown_by(answer) if answer.status == 200 else None
                self._must_allow(method, path, begun, time.monotonic(), version)
        if method == "GET" and answer.status == 200:
            assert md5(answer.body, usedforsecurity=False).hexdigest() == answer.headers["Etag"].strip('"'), path
