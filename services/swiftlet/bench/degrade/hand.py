"""Breaks a store when the second phase begins, and mends it when the third does, while the load goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from swiftlet.bench.runner import Progress

BROKEN, MENDED = 2, 3
"""The numbers of the phases that begin with it."""
_LOOK_S = 0.25


@dataclass(frozen=True)
class Acts:
    """What is done to a store. All of them take their time."""

    breaks: Callable[[], None]
    mends: Callable[[], None]
    until_whole: Callable[[threading.Event], bool] | None
    """Waits for full redundancy, and tells whether it came in time; ends early when it is told that all is over. None:
    nobody can tell."""
    is_task: bool = False
    """Whether `breaks` is something that ends by itself, with a store that is whole: nothing is mended after it."""
    ends: Callable[[], None] = field(default=lambda: None)
    """Ends `breaks` soon while it is under way."""
    mends_always: bool = False
    """Whether to mend what was not broken to the end, too."""


class Hand:
    """Does what is due in each phase, in a thread beside that of the run."""

    def __init__(self, acts: Acts, asked: Callable[[], int] = lambda: 0) -> None:
        """`asked` tells how often the user has asked to stop: whole or not, nobody waits for it then."""
        self._acts = acts
        self._asked = asked
        self._begun, self._done = 0, 1
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._over = threading.Event()
        self._mends = self._is_ended = False
        self._broken_at: float | None = None
        self._looked_at = time.monotonic()
        self.act_s: dict[int, float] = {}
        """How long it took to break and to mend, by the numbers of the phases."""
        self.first_success_s: float | None = None
        self.whole_s: float | None = None
        self.is_whole: bool | None = None

    @property
    def rests(self) -> bool:
        """Whether nothing that it has begun is under way."""
        return self._thread is None or not self._thread.is_alive()

    @property
    def has_failed(self) -> bool:
        """Whether breaking or mending has failed; `end` says how."""
        return self._error is not None

    def begins(self) -> None:
        """The next phase begins."""
        self._begun += 1

    def at(self, progress: Progress) -> None:
        """Do what is due at this progress; called again and again by the run's thread."""
        now = time.monotonic()
        if (
            self.first_success_s is None
            and self._broken_at is not None
            and self._looked_at >= self._broken_at
            and progress.recent["succeeded"]
        ):
            self.first_success_s = now - self._broken_at
        self._looked_at = now
        # What takes longer than its phase is ended before the next thing begins.
        if self._begun > self._done and self.rests and not self.has_failed:
            self._done += 1
            self._start(self._done)

    def _start(self, phase: int) -> None:
        self._thread = threading.Thread(target=self._act, args=(phase,))
        self._thread.start()

    def _act(self, phase: int) -> None:
        began = time.monotonic()
        try:
            if phase == BROKEN:
                self._mends = self._acts.mends_always
                self._acts.breaks()
                self._mends = not self._acts.is_task
                self._broken_at = time.monotonic()
                if self._acts.is_task:
                    self.whole_s, self.is_whole = self._broken_at - began, True
            elif not self._acts.is_task:
                self._mend()
        except BaseException as error:
            if not self._is_ended:
                self._error = error
        finally:
            self.act_s.setdefault(phase, time.monotonic() - began)

    def _mend(self) -> None:
        began = time.monotonic()
        self._mends = False
        self._acts.mends()
        self.act_s[MENDED] = time.monotonic() - began
        if self._acts.until_whole is not None and not self._over.is_set():
            self.is_whole = self._acts.until_whole(self._over)
            if self.is_whole:
                self.whole_s = time.monotonic() - began
            elif self._over.is_set():
                self.is_whole = None

    def end(self) -> None:
        """Wait for the end of it, and mend what is still broken. Raises what went wrong."""
        is_cut_short = self._begun < MENDED or self._asked() > 0 or self.has_failed
        while not self.rests or (self._begun > self._done and not is_cut_short):
            if self.rests:
                self._done += 1
                self._start(self._done)
            if is_cut_short := is_cut_short or self._asked() > 0 or self.has_failed:
                self._over.set()
                if self._done == BROKEN and not self.rests:
                    self._is_ended = True
                    self._acts.ends()
            assert self._thread is not None
            self._thread.join(_LOOK_S)
        failed = self._error
        if self._mends and not self._acts.is_task:
            self._over.set()
            try:
                self._mend()
            except Exception as error:
                if failed is None:
                    raise
                raise type(error)(f"{failed}; and then {error}") from failed
        if failed is not None:
            raise failed
