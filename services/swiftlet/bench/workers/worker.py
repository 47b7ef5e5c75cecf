"""A worker: a generator that does what a coordinator says, step by step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from swiftlet.bench.errors import BenchError
from swiftlet.bench.results import Result, StepResult
from swiftlet.bench.runner import Options, Progress, run
from swiftlet.bench.scenario import Scenario
from swiftlet.bench.target import Target
from swiftlet.bench.workers.channel import Channel, LostError
from swiftlet.bench.workers.frames import Message

BEAT_S = 1.0
_LOOK_S = 0.25
Runs = Callable[[Scenario, Target, Options], Result]


def work(
    channel: Channel,
    target: Target,
    report: Callable[[Progress], None],
    stops: Callable[[], int] = lambda: 0,
    runs: Runs = run,
) -> Result:
    """Do what the coordinator at the other end says with a store; what this worker itself has measured.

    `stops` returns how often the user has asked to stop. BenchError when it can't work, and when the coordinator is
    lost: then objects are deleted first.
    """
    return _Work(channel, target, report, stops).run(runs)


class _Work:
    def __init__(
        self, channel: Channel, target: Target, report: Callable[[Progress], None], stops: Callable[[], int]
    ) -> None:
        self._channel, self._target, self._report, self._users_stops = channel, target, report, stops
        self._told_to_stop = 0
        self._why: BenchError | None = None
        self._may_begin = threading.Semaphore(0)
        self._over = threading.Event()
        self._beat_at = 0.0

    def run(self, runs: Runs) -> Result:
        plan = self._channel.receive()
        while plan["kind"] == "here":
            # Others have not come yet.
            plan = self._channel.receive()
        if plan["kind"] != "plan":
            raise BenchError(f"the coordinator began with {plan['kind'][:20]!r} in place of a plan")
        listening = threading.Thread(target=self._listen, daemon=True)
        listening.start()
        # Nothing is reported while a step begins and ends, or this worker waits for others.
        beating = threading.Thread(target=self._beat, daemon=True)
        beating.start()
        try:
            result = runs(_scenario(plan), self._target, self._options(plan))
        except BenchError as error:
            self._say_last({"kind": "done", "why": str(self._why or error)})
            raise self._why or error from error
        finally:
            self._over.set()
        if self._why is not None:
            raise self._why
        self._say_last(
            {
                "kind": "done",
                "target": result.target,
                "preparation_s": result.preparation_s,
                "is_cut_short": result.is_cut_short,
            }
        )
        return result

    def _options(self, plan: Message) -> Options:
        return Options(
            prefix=str(plan["prefix"]),
            runs=int(plan["runs"]),
            keeps=bool(plan.get("keeps")),
            report=self._reported,
            stops=self._stops,
            gate=self._gate,
            measured=self._measured,
        )

    def _stops(self) -> int:
        return self._told_to_stop + self._users_stops()

    def _listen(self) -> None:
        while True:
            try:
                message = self._channel.receive()
            except BenchError as error:
                if not self._over.is_set():
                    self._why = BenchError(f"the coordinator is lost: {error}")
                    self._told_to_stop += 1
                    self._may_begin.release()
                return
            if message["kind"] == "go":
                self._may_begin.release()
            elif message["kind"] == "stop":
                self._told_to_stop += 1
                self._may_begin.release()

    def _gate(self) -> None:
        self._channel.send({"kind": "ready"})
        while not self._may_begin.acquire(timeout=_LOOK_S) and not self._stops():
            pass
        if self._why is not None:
            raise self._why

    def _measured(self, step: StepResult) -> None:
        self._channel.send({"kind": "step", "step": step.model_dump(mode="json")})

    def _reported(self, progress: Progress) -> None:
        self._report(progress)
        now = time.monotonic()
        if now - self._beat_at < BEAT_S or self._why is not None:
            return
        self._beat_at = now
        numbers: dict[str, Any] = {name: progress.recent.get(name) for name in ("succeeded", "moved_bytes", "p99_s")}
        totals = {"all_succeeded": progress.succeeded, "failed": progress.failed, "seconds": progress.seconds}
        self._say({"kind": "beat", "what": progress.what, **numbers, **totals})

    def _beat(self) -> None:
        """Say again and again that this worker is there."""
        while not self._over.wait(BEAT_S):
            self._say({"kind": "here"})

    def _say(self, message: Message) -> None:
        try:
            self._channel.send(message)
        except LostError as error:
            self._why = self._why or BenchError(f"the coordinator is lost: {error}")
            self._told_to_stop += 1

    def _say_last(self, message: Message) -> None:
        self._over.set()
        try:
            self._channel.send(message)
        except LostError as error:
            self._why = self._why or BenchError(f"the coordinator is lost: {error}")


def _scenario(plan: Message) -> Scenario:
    try:
        return Scenario.model_validate(plan.get("scenario"))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise BenchError(
            f"the coordinator's scenario can't be used: {where}: {first['msg']}; use one release"
        ) from error
