"""Clients of a store that are a process each, and are asked and answer at the same time."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any


class Crew:
    """The processes of some clients."""

    def __init__(self, count: int, work: Callable[[int, Connection], None]) -> None:
        """Start so many processes, each with its number and one end of a pipe; `work` can be pickled.

        It receives messages from the pipe until one is None, and sends an answer to each of the others.
        """
        context = get_context("spawn")
        self._pipes = [context.Pipe() for _ in range(count)]
        self._running = [
            context.Process(target=work, args=(number, theirs), daemon=True)
            for number, (_, theirs) in enumerate(self._pipes)
        ]
        for process in self._running:
            process.start()

    @property
    def pids(self) -> list[int]:
        """Return the numbers of the processes, for the system."""
        return [process.pid or 0 for process in self._running]

    def ask(self, message: object) -> list[Any]:
        """Send a message to all clients, and return what each of them answers."""
        for ours, _ in self._pipes:
            ours.send(message)
        return self.answers()

    def answers(self) -> list[Any]:
        """Return the next answer of each client; raises RuntimeError when one has ended instead."""
        return [self._answer(number) for number in range(len(self._pipes))]

    def _answer(self, number: int) -> object:
        pipe = self._pipes[number][0]
        while not pipe.poll(1.0):
            if not self._running[number].is_alive():
                raise RuntimeError("a client has ended by itself; what it says is above")
        return pipe.recv()

    def end(self) -> None:
        """Tell all clients to end; those that have not after 30 s are killed."""
        for ours, _ in self._pipes:
            ours.send(None)
        for process in self._running:
            process.join(30)
            process.kill()
