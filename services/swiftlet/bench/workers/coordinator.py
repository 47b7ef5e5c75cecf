"""The coordinator: waits for workers, lets all of them begin each step together, and merges what they measured."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from swiftlet.bench.environment import facts
from swiftlet.bench.errors import BenchError
from swiftlet.bench.results import Result, StepResult
from swiftlet.bench.runner import Progress, Step, steps
from swiftlet.bench.scenario import Scenario
from swiftlet.bench.workers.channel import Channel, LostError, welcome
from swiftlet.bench.workers.frames import Message
from swiftlet.bench.workers.merging import merged_step

MAX_WORKERS = 256
"""Workers of one coordinator, which has a thread for each."""
_LOOK_S = 0.25
_HERE_S = 1.0
"""Each second the workers hear that the coordinator is there."""
_NOTHING = {"succeeded": 0, "moved_bytes": 0, "p99_s": 0.0}
_MAX_WAITING = 1024
"""Messages of workers that nobody has read yet; then their connections wait."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What all workers do."""

    scenario: Scenario
    workers: int
    prefix: str
    runs: int = 1
    wait_s: float = 300.0
    """Seconds to wait for all workers to come."""
    keeps: bool = False
    report: Callable[[Progress], None] = field(default=lambda _: None)
    stops: Callable[[], int] = field(default=lambda: 0)


@dataclass(slots=True)
class _Worker:
    name: str
    channel: Channel
    ready: int = 0
    """Steps that it has been ready for."""
    measured: int = 0
    ended: Mapping[str, Any] | None = None
    """The last message of the worker; None until it comes."""
    is_lost: bool = False
    beat: Mapping[str, Any] = field(default_factory=dict)

    @property
    def works(self) -> bool:
        return self.ended is None and not self.is_lost


def check_plan(scenario: Scenario, workers: int) -> None:
    """Refuse what several workers can't do together."""
    if not 1 <= workers <= MAX_WORKERS:
        raise BenchError(f"--workers must be from 1 to {MAX_WORKERS}, not {workers}")
    if scenario.closed is not None and scenario.closed.ramp is not None:
        raise BenchError(
            "closed.ramp: each of several workers would end the ramp for itself; name the steps, as "
            "--set 'closed.connections=[1,2,4,8]' (in place of closed.ramp)"
        )


def coordinate(plan: Plan, listener: socket.socket, token: str) -> Result:
    """Run a plan with the workers that come to a listening socket.

    BenchError when they don't come in time, or when nothing could be measured. Workers that are lost afterwards are
    named in the result; steps are those of the others.
    """
    check_plan(plan.scenario, plan.workers)
    return _Coordination(plan, listener, token).run()


class _Coordination:
    def __init__(self, plan: Plan, listener: socket.socket, token: str) -> None:
        self._plan, self._listener, self._token = plan, listener, token
        self._workers: list[_Worker] = []
        self._heard: queue.Queue[tuple[_Worker, Message | BenchError]] = queue.Queue(_MAX_WAITING)
        self._steps: list[Step] = [step for _ in range(plan.runs) for step in steps(plan.scenario)]
        self._found: dict[int, list[StepResult]] = {}
        self._lost: list[str] = []
        self._begun = 0
        self._told_to_stop = 0
        self._here_at = self._reported_at = 0.0
        self._clock = time.monotonic()

    def run(self) -> Result:
        began, environment = datetime.now(UTC), facts()
        try:
            self._gather()
            self._clock = time.monotonic()
            for worker in self._workers:
                self._send(worker, {"kind": "plan", **self._document(worker)})
                threading.Thread(target=self._listen, args=(worker,), daemon=True).start()
            while any(worker.works for worker in self._workers):
                self._hear()
                self._let_begin()
                self._stop()
                self._say_here(lambda worker, error: self._lose(worker, str(error)))
                self._report()
        finally:
            for worker in self._workers:
                worker.channel.close()
        return self._result(began, environment)

    def _gather(self) -> None:
        """Greet workers until all are there. Who has no token is refused and waited for no longer."""
        deadline = time.monotonic() + self._plan.wait_s
        while len(self._workers) < self._plan.workers:
            left = deadline - time.monotonic()
            if left <= 0 or self._plan.stops():
                came = ", ".join(worker.name for worker in self._workers) or "none"
                raise BenchError(
                    f"{len(self._workers)} of {self._plan.workers} workers came within {self._plan.wait_s:g} s "
                    f"({came}); start the others with `swiftlet bench worker`, or name fewer with --workers"
                )
            self._say_here(self._drop)
            self._listener.settimeout(min(left, _LOOK_S))
            try:
                sock, _ = self._listener.accept()
            except TimeoutError:
                continue
            try:
                name, channel = welcome(sock, self._token, len(self._workers))
            except BenchError as error:
                sock.close()
                self._plan.report(Progress(f"refused a connection: {error}", 0, 0, 0.0, _NOTHING))
                continue
            self._workers.append(_Worker(name, channel))

    def _say_here(self, loses: Callable[[_Worker, LostError], None]) -> None:
        now = time.monotonic()
        if now - self._here_at < _HERE_S:
            return
        self._here_at = now
        for worker in [one for one in self._workers if one.works]:
            try:
                worker.channel.send({"kind": "here"})
            except LostError as error:
                loses(worker, error)

    def _drop(self, worker: _Worker, _: LostError) -> None:
        """Forget a worker that went before all had come: another one takes its place."""
        worker.channel.close()
        self._workers.remove(worker)

    def _document(self, worker: _Worker) -> dict[str, Any]:
        number = self._workers.index(worker)
        return {
            "scenario": self._plan.scenario.document(),
            "prefix": f"{self._plan.prefix}-w{number}",
            "runs": self._plan.runs,
            "keeps": self._plan.keeps,
        }

    def _listen(self, worker: _Worker) -> None:
        """Pass on what a worker says, in a thread of its own, until it is gone."""
        while True:
            try:
                message = worker.channel.receive()
            except BenchError as error:
                self._heard.put((worker, error))
                return
            self._heard.put((worker, message))
            if message["kind"] == "done":
                return

    def _hear(self) -> None:
        try:
            worker, message = self._heard.get(timeout=_LOOK_S)
        except queue.Empty:
            return
        if not worker.works:
            return
        if isinstance(message, BenchError):
            self._lose(worker, str(message))
            return
        match message["kind"]:
            case "here":
                pass
            case "beat":
                worker.beat = message
            case "ready":
                worker.ready += 1
            case "step":
                self._keep(worker, message)
            case "done":
                self._end(worker, message)
            case other:
                self._lose(worker, f"it said {other[:20]!r}, which no worker says")

    def _keep(self, worker: _Worker, message: Message) -> None:
        try:
            step = StepResult.model_validate(message.get("step"))
        except ValidationError as error:
            self._lose(worker, f"its result can't be used: {error.errors(include_url=False)[0]['msg']}")
            return
        if worker.measured >= self._begun:
            if self._told_to_stop:
                # It was to begin, and to stop, at the same time.
                return
            self._lose(worker, "it measured a step that had not begun")
            return
        self._found.setdefault(worker.measured, []).append(step)
        worker.measured += 1

    def _end(self, worker: _Worker, message: Message) -> None:
        worker.ended = message
        if message.get("why"):
            self._lose(worker, str(message["why"]))
        elif worker.measured < len(self._steps) and not self._told_to_stop:
            self._lose(worker, "its user stopped it")

    def _lose(self, worker: _Worker, why: str) -> None:
        worker.is_lost = True
        place = f"before step {worker.measured + 1} of {len(self._steps)}"
        if self._begun > worker.measured:
            place = f"in step {worker.measured + 1} of {len(self._steps)}"
        if worker.measured == len(self._steps):
            place = "after its last step"
        elapsed_s = time.monotonic() - self._clock
        self._lost.append(f"{worker.name}, {place}, {elapsed_s:.0f} s after the beginning: {why}")
        worker.channel.close()

    def _let_begin(self) -> None:
        """Let the next step begin once all who still work are ready for it."""
        working = [worker for worker in self._workers if worker.works]
        if working and all(worker.ready > self._begun for worker in working):
            self._begun += 1
            for worker in working:
                self._send(worker, {"kind": "go"})

    def _stop(self) -> None:
        asked = self._plan.stops()
        if asked > self._told_to_stop:
            self._told_to_stop = asked
            for worker in self._workers:
                if worker.works:
                    self._send(worker, {"kind": "stop"})

    def _send(self, worker: _Worker, message: Message) -> None:
        try:
            worker.channel.send(message)
        except LostError as error:
            if worker.works:
                self._lose(worker, str(error))

    def _report(self) -> None:
        if time.monotonic() - self._reported_at < _LOOK_S:
            return
        self._reported_at = time.monotonic()
        working = [worker for worker in self._workers if worker.works]
        beats = [worker.beat for worker in working if worker.beat]
        recent = {name: _sum(beats, name) for name in ("succeeded", "moved_bytes")}
        recent["p99_s"] = max((_number(beat, "p99_s") for beat in beats), default=0.0)
        what = str(beats[0].get("what"))[:200] if beats else "waiting for workers"
        self._plan.report(
            Progress(
                f"{len(working)} of {len(self._workers)} workers, {what}",
                int(_sum(beats, "all_succeeded")),
                int(_sum(beats, "failed")),
                max((_number(beat, "seconds") for beat in beats), default=0.0),
                recent,
            )
        )

    def _result(self, began: datetime, environment: dict[str, Any]) -> Result:
        ended = [worker.ended for worker in self._workers if worker.ended is not None]
        if not self._found:
            raise BenchError(f"nothing was measured: {'; '.join(self._lost) or 'no worker began'}")
        places = dict.fromkeys(str(one["target"]) for one in ended if one.get("target"))
        return Result(
            scenario=self._plan.scenario.document(),
            target=", ".join(places) or "unknown: no worker came to its end",
            began=began.isoformat(timespec="seconds"),
            environment={**environment, "workers": [worker.name for worker in self._workers]},
            preparation_s=max((_number(one, "preparation_s") for one in ended), default=0.0),
            is_cut_short=any(bool(one.get("is_cut_short")) for one in ended),
            lost=tuple(self._lost),
            steps=tuple(merged_step(self._found[number]) for number in sorted(self._found)),
        )


def _number(message: Mapping[str, Any], name: str) -> float:
    found = message.get(name)
    return float(found) if isinstance(found, int | float) else 0.0


def _sum(messages: list[Mapping[str, Any]], name: str) -> float:
    return sum(_number(message, name) for message in messages)
