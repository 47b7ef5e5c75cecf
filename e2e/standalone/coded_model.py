"""What clients of objects with erasure coding send and are answered while processes are killed.

A body is made of its object's name, its operation's number and its size, so that whatever is read tells which write it
is of, byte by byte. What clients know and judge is in `e2e.standalone.packed_model`.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from e2e.standalone.model_clients import PATIENCE_S, Connection
from e2e.standalone.wire import Answer, Client

SIZES = (0, 1, 900, 70_000, 1_500_000, 5_000_000)
"""Bytes of objects: within one cell, in several, and of fragments with files of their own."""


def body_of(name: str, number: int, size: int) -> bytes:
    """The bytes of a write: no piece of them is equal to the same piece of another write."""
    return random.Random(f"{name} {number} {size}").randbytes(max(0, size))


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
