"""Files that are read again while a service runs: keys, users, quotas, certificates.

Fault model: a file may be gone, half-written, damaged or unreadable at any check, and be whole again at a later one.
The content that was read last stays in force; the failure is counted, and logged once for as long as it is the same.
Each process checks for itself, so workers may differ for as long as the interval.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from aiohttp import web
from prometheus_client import Counter

from swiftlet.errors import SettingsError
from swiftlet.main.background import in_background
from swiftlet.web.logs import get_logger

Look = tuple[tuple[int, int, int], ...]
"""Modification time in ns, size and inode of each file, of which one changes with the file."""

_log = get_logger("reloading")


def look_at(paths: Sequence[Path]) -> Look:
    """Return the state of the files, following links. Raises OSError if one can't be read."""
    stats = [path.stat() for path in paths]
    return tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)


class Reloading:
    """Checks files by `reload`, which returns whether they had changed; its SettingsError leaves the last content in
    force.
    """

    def __init__(self, what: str, reload: Callable[[], bool], failures: Counter) -> None:
        """`what` names the files in the log; `failures` counts."""
        self._what = what
        self._reload = reload
        self._failures = failures
        self._problem = ""

    def look(self) -> bool:
        """Check once; return whether new content is in force. Blocks."""
        try:
            changed = self._reload()
        except SettingsError as error:
            if str(error) != self._problem:
                self._failures.inc()
                _log.warning(
                    f"the {self._what} can't be used; the last valid version stays in force", problem=str(error)
                )
            self._problem = str(error)
            return False
        self._problem = ""
        if changed:
            _log.info(f"the {self._what} has been loaded")
        return changed


def keep_current(
    app: web.Application,
    what: str,
    reload: Callable[[], bool],
    failures: Counter,
    interval_s: float,
    then: Callable[[], None] | None = None,
) -> None:
    """Check every `interval_s` seconds while `app` runs; `then` is called in the event loop when something changed."""
    reloading = Reloading(what, reload, failures)

    async def watch() -> None:
        while True:
            await asyncio.sleep(interval_s)
            if await asyncio.to_thread(reloading.look) and then is not None:
                then()

    async def watched(_app: web.Application) -> AsyncIterator[None]:
        async with in_background(watch):
            yield

    app.cleanup_ctx.append(watched)
