"""The rings of a process: loaded from a directory, looked at every few seconds, swapped as a whole.

A ring that can't be loaded never takes the place of one that could: the last good one stays, the log says why,
and the file is tried again when it changes. A service may start before its rings are there; until then it is
not ready and its answers are Unavailable.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from prometheus_client import Counter, Gauge

from swiftlet.errors import Unavailable
from swiftlet.main.background import in_background
from swiftlet.main.ring_names import ACCOUNT, CONTAINER, object_ring
from swiftlet.ring import codec
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import RingError
from swiftlet.settings import ServiceSettings
from swiftlet.web.health import READINESS
from swiftlet.web.logs import get_logger

VERSION = Gauge(
    "swiftlet_ring_version", "Version of the ring in use, 0 when none is.", ["ring"], multiprocess_mode="livemin"
)
FAILURES = Counter("swiftlet_ring_load_failures_total", "Ring files that could not be used.", ["ring"])

_log = get_logger("rings")

Signature = tuple[int, int, int]
"""Modification time in ns, size and inode: what changes when a file does."""


@dataclass(slots=True)
class _Slot:
    """One ring: what is in use, which file content was tried last, and why it failed if it did."""

    ring: Ring | None = None
    tried: Signature | None = None
    problem: str = "not looked for yet"


class RingSet:
    """The rings that one process uses; implements `swiftlet.placement.rings.Rings`."""

    def __init__(self, directory: Path, names: Sequence[str], load: Callable[[Path], Ring] = codec.load) -> None:
        """Rings called `names`, each in `<directory>/<name>.ring`; loads none yet."""
        self._directory = directory
        self._load = load
        self._slots = {name: _Slot() for name in names}
        for name in names:
            VERSION.labels(name).set(0)

    @classmethod
    def of(
        cls, settings: ServiceSettings, *, account: bool = True, container: bool = True, objects: bool = True
    ) -> RingSet:
        """The rings that a service needs, loaded as far as they are there."""
        names = [ACCOUNT] * account + [CONTAINER] * container
        names += [object_ring(policy.index) for policy in settings.policies] if objects else []
        rings = cls(settings.cluster.rings, names)
        rings.refresh()
        return rings

    def account(self) -> Ring:
        """The ring of account databases; Unavailable while there is none."""
        return self._get(ACCOUNT)

    def container(self) -> Ring:
        """The ring of container databases; Unavailable while there is none."""
        return self._get(CONTAINER)

    def objects(self, policy: int) -> Ring:
        """The ring of a policy's objects; Unavailable while there is none."""
        return self._get(object_ring(policy))

    def _get(self, name: str) -> Ring:
        slot = self._slots.get(name)
        if slot is None:
            raise Unavailable(f"no ring {name} is configured here")
        if slot.ring is None:
            raise Unavailable(f"the ring {name} is not loaded: {slot.problem}")
        return slot.ring

    def missing(self) -> str | None:
        """Why not all rings are there, None when they are; for readiness."""
        absent = [f"{name}: {slot.problem}" for name, slot in self._slots.items() if slot.ring is None]
        return "; ".join(absent) or None

    def refresh(self) -> list[str]:
        """Look at the files and load those that changed; the names of the rings that are new. Blocks."""
        return [name for name, slot in self._slots.items() if self._refresh(name, slot)]

    def _refresh(self, name: str, slot: _Slot) -> bool:
        path = self._directory / f"{name}.ring"
        try:
            stat = path.stat()
            signature = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if signature == slot.tried:
                return False
            slot.tried = signature
            ring = self._load(path)
            _check_successor(slot.ring, ring)
        except OSError as error:
            return self._refused(name, slot, f"{path}: {error.strerror}")
        except RingError as error:
            return self._refused(name, slot, f"{path}: {error}")
        changed = slot.ring is None or slot.ring != ring
        slot.ring, slot.problem = ring, ""
        VERSION.labels(name).set(ring.version)
        if changed:
            _log.info("ring loaded", ring=name, version=ring.version, part_power=ring.part_power)
        return changed

    def _refused(self, name: str, slot: _Slot, problem: str) -> bool:
        if problem != slot.problem:
            slot.problem = problem
            FAILURES.labels(name).inc()
            in_use = slot.ring.version if slot.ring is not None else None
            _log.warning("ring not usable", ring=name, problem=problem, version_in_use=in_use)
        return False


def _check_successor(before: Ring | None, after: Ring) -> None:
    if before is not None and before.part_power != after.part_power:
        raise RingError(
            f"part_power changed from {before.part_power} to {after.part_power}: objects would be looked for in other "
            "places than they are in"
        )


RINGS = web.AppKey("rings", RingSet)


def use_rings(app: web.Application, rings: RingSet, interval_s: float) -> None:
    """Give `app` its rings: kept up to date while it runs, and a condition of its readiness."""
    app[RINGS] = rings
    app[READINESS].add("rings", rings.missing)

    async def watched(_app: web.Application) -> AsyncIterator[None]:
        async with watching(rings, interval_s):
            yield

    app.cleanup_ctx.append(watched)


@asynccontextmanager
async def watching(rings: RingSet, interval_s: float) -> AsyncIterator[None]:
    """Look for new rings every `interval_s` seconds within the block."""

    async def watch() -> None:
        while True:
            await asyncio.sleep(interval_s)
            await asyncio.to_thread(rings.refresh)

    async with in_background(watch):
        yield
