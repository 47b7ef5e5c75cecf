"""Clients of coded objects that write, post, read and delete while processes are killed, and what they know.

Each object has one writer, whose operations are numbered, and each write and POST leaves its number in the object's
metadata. A body is made of its object's name, its operation's number and its size. So whatever is read tells which
write its bytes are of, and which operation its metadata are of. A reader notes the last acknowledged operation before
it asks: what it is shown is of that one or of later ones.

While processes are killed a reader of a small object may be shown something older: of three devices that keep copies
two may have missed a write in whose place another device has taken it, until sync has brought it. Such answers are
counted. What is never allowed is bytes of no write, or metadata of another one's; and, of objects that are coded by
themselves, anything older at all.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from e2e.standalone.coded_model import Answers, Caller, body_of
from e2e.standalone.wire import Answer, Client

SIZES = (0, 1, 900, 3000, 9000, 20_000)
"""Bytes of small objects."""
LARGE = 90_000
"""Bytes of an object that is coded by itself."""
LARGE_SHARE = 0.05
MARK = "X-Object-Meta-Mark"
Kind = Literal["put", "post", "delete"]


@dataclass(frozen=True, slots=True)
class Done:
    """An operation of an object's writer."""

    kind: Kind
    size: int = 0


@dataclass
class Small:
    """One object: what its writer has done, the oldest first."""

    name: str
    done: list[Done] = field(default_factory=lambda: [Done("delete")])
    acknowledged: int = 0
    """The number of the last operation that was acknowledged."""
    based: int = 0
    """The number of the last write or deletion that was acknowledged."""


@dataclass
class PackedModel(Answers):
    """Knows what all clients have written, and judges what they read."""

    names: list[Small]
    large_puts: int = 0
    """Writes of objects that are coded by themselves that are under way."""

    def judge(self, small: Small, since: tuple[int, int], answer: Answer) -> str | None:
        """Return what is wrong with an answer to a GET by who began to ask when `since` was acknowledged: the last
        operation, and the last write or deletion.
        """
        acknowledged, based = since
        with self.lock:
            done = list(small.done)
        if answer.status == 404:
            gone = any(one.kind == "delete" for one in done[based:])
            return None if gone else f"it is not there, since {since}: {done[based:]}"
        size = len(answer.body)
        puts = [number for number, one in enumerate(done) if number >= based and (one.kind, one.size) == ("put", size)]
        of = next((number for number in puts if answer.body == body_of(small.name, number, size)), None)
        if of is None:
            return f"{size} bytes are of none of {done[based:]}, from {based} on"
        mark = int(answer.headers.get(MARK, "-1"))
        # A body of one byte may be that of several writes.
        is_known = max(acknowledged, min(puts)) <= mark < len(done) and done[mark].kind != "delete"
        if not is_known or (done[mark].kind == "put" and size > 1 and mark != of):
            return f"bytes of {of} and metadata of {mark}, since {since}: {done[based:]}"
        return None


class PackedWorker(Caller):
    """One client: it writes some of the objects, and reads all."""

    def __init__(
        self,
        client: Client,
        container: str,
        model: PackedModel,
        own: list[Small],
        chooser: random.Random,
        coded_sizes: Sequence[int] = (),
        large: tuple[float, Sequence[int]] = (LARGE_SHARE, (LARGE,)),
    ) -> None:
        """`own` are the objects of which it is the only writer, with `coded_sizes` where no object is small, and else a
        share of `large` ones.
        """
        super().__init__(client, container, model)
        self._coded_sizes = coded_sizes
        self._large = large
        self._model = model
        self._own = own
        self._chooser = chooser

    def step(self) -> None:
        """Do something about a random object."""
        self._chooser.choices([self.put, self.post, self.delete, self.read], [4, 2, 1, 4])[0]()

    def put(self) -> None:
        (share, large), is_large = self._large, False
        if self._coded_sizes:
            size = self._chooser.choice(self._coded_sizes)
        else:
            is_large = self._chooser.random() < share
            size = self._chooser.choice(large if is_large else SIZES)
        small = self._chooser.choice(self._own)
        number = self._begin(small, Done("put", size))
        body = body_of(small.name, number, size)
        with self._model.lock:
            self._model.large_puts += is_large
        answer = self._call("PUT", small.name, {MARK: str(number)}, body)
        with self._model.lock:
            self._model.large_puts -= is_large
        self._end(small, number, answer.status == 201)

    def post(self) -> None:
        small = self._chooser.choice(self._own)
        number = self._begin(small, Done("post"))
        answer = self._call("POST", small.name, {MARK: str(number)})
        self._end(small, number, answer.status == 202)

    def delete(self) -> None:
        small = self._chooser.choice(self._own)
        number = self._begin(small, Done("delete"))
        answer = self._call("DELETE", small.name)
        # That there is nothing is right only if something that may count has deleted it before.
        self._end(small, number, answer.status in {204, 404})

    def read(self) -> None:
        """Read an object, and note what may not be."""
        small = self._chooser.choice(self._model.names)
        with self._model.lock:
            since = small.acknowledged, small.based
        answer = self._call("GET", small.name)
        if answer.status not in {200, 404} or self._model.judge(small, since, answer) is None:
            return
        wrong = self._model.judge(small, since if self._coded_sizes else (0, 0), answer)
        with self._model.lock:
            self._model.counts["older"] += 1
            if wrong is not None:
                self._model.wrong.append(f"{small.name}: {wrong}")

    def _begin(self, small: Small, done: Done) -> int:
        with self._model.lock:
            small.done.append(done)
            return len(small.done) - 1

    def _end(self, small: Small, number: int, is_acknowledged: bool) -> None:
        if is_acknowledged:
            with self._model.lock:
                small.acknowledged = number
                if small.done[number].kind != "post":
                    small.based = number
