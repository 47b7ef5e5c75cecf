"""Clients of objects with erasure coding that write, read and delete while processes are killed, and what they know.

Each object has one writer, whose operations are numbered; a body is made of its object's name, its operation's number
and its size, so that whatever is read tells which write it is of, byte by byte. A reader notes the last acknowledged
operation before it asks: what it is shown has to be that one or a later one. A write that was answered with an error,
or not at all, may count or not.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from e2e.standalone.model_clients import Connection
from e2e.standalone.wire import Answer, Client

SIZES = (0, 1, 900, 70_000, 1_500_000, 5_000_000)
"""Bytes of objects: within one cell, in several, and of fragments with files of their own."""
ABSENT = -1
"""The size of an object that was deleted."""
PATIENCE_S = 60.0
"""No request takes longer, whoever was killed."""


def body_of(name: str, number: int, size: int) -> bytes:
    """The bytes of a write: no piece of them is equal to the same piece of another write."""
    return random.Random(f"{name} {number} {size}").randbytes(max(0, size))


@dataclass
class Name:
    """One object: what its writer has done, the oldest first."""

    name: str
    sizes: list[int] = field(default_factory=lambda: [ABSENT])
    """Size by number of operation; the object was not there at first."""
    acknowledged: int = 0
    """The number of the last operation that was acknowledged."""

    def allowed(self, since: int) -> list[int]:
        """The operations that may be seen by who began to ask when `since` was acknowledged."""
        return list(range(since, len(self.sizes)))


@dataclass(kw_only=True)
class Answers:
    """What all clients were answered, and what of it may not be."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    counts: Counter[str] = field(default_factory=Counter)
    """Answers, by method and status."""
    wrong: list[str] = field(default_factory=list)


class Caller:
    """One client with a connection of its own; what it is answered is counted."""

    def __init__(self, client: Client, container: str, answers: Answers) -> None:
        """Its objects are in this container."""
        self._container = container
        self._answers = answers
        self._connection = Connection(client)

    def close(self) -> None:
        self._connection.close()

    def _call(self, method: str, name: str, headers: dict[str, str] | None = None, body: bytes = b"") -> Answer:
        begun = time.monotonic()
        answer = self._connection.call(method, f"{self._container}/{name}", headers or {}, body)
        # A body that ends early was cut off, and is no answer.
        with self._answers.lock:
            self._answers.counts[f"{method} {answer.status}"] += 1
            if time.monotonic() - begun > PATIENCE_S:
                self._answers.wrong.append(f"{method} of {name} was not answered within {PATIENCE_S:g} s")
        return answer


@dataclass
class Model(Answers):
    """Knows what all clients have written, and judges what they read."""

    names: list[Name]

    def judge(self, name: Name, since: int, answer: Answer) -> bool:
        """Whether an answer to a GET may be: one of an operation's bytes, or that the object is not there."""
        with self.lock:
            allowed = [(number, name.sizes[number]) for number in name.allowed(since)]
        if answer.status == 404:
            return any(size == ABSENT for _, size in allowed)
        same = [number for number, size in allowed if size == len(answer.body)]
        return any(answer.body == body_of(name.name, number, len(answer.body)) for number in same)


class Worker(Caller):
    """One client: it writes some of the objects, and reads all."""

    def __init__(self, client: Client, container: str, model: Model, own: list[Name], chooser: random.Random) -> None:
        """`own` are the objects of which it is the only writer."""
        super().__init__(client, container, model)
        self._model = model
        self._own = own
        self._chooser = chooser

    def step(self) -> None:
        self._chooser.choices([self.put, self.delete, self.read], [5, 1, 4])[0]()

    def put(self) -> None:
        name, size = self._chooser.choice(self._own), self._chooser.choice(SIZES)
        number = self._begin(name, size)
        answer = self._call("PUT", name.name, body=body_of(name.name, number, size))
        self._end(name, number, answer.status == 201)

    def delete(self) -> None:
        name = self._chooser.choice(self._own)
        number = self._begin(name, ABSENT)
        answer = self._call("DELETE", name.name)
        # That there is nothing is right only if something that may count has deleted it before.
        self._end(name, number, answer.status in {204, 404})

    def read(self) -> None:
        """Read an object, and note what may not be."""
        name = self._chooser.choice(self._model.names)
        with self._model.lock:
            since = name.acknowledged
        answer = self._call("GET", name.name)
        if answer.status in {200, 404} and not self._model.judge(name, since, answer):
            with self._model.lock:
                last = name.sizes[since:]
                self._model.wrong.append(f"{name.name}: {answer.status}, {len(answer.body)} bytes; {since}: {last}")

    def _begin(self, name: Name, size: int) -> int:
        with self._model.lock:
            name.sizes.append(size)
            return len(name.sizes) - 1

    def _end(self, name: Name, number: int, is_acknowledged: bool) -> None:
        if is_acknowledged:
            with self._model.lock:
                name.acknowledged = number
