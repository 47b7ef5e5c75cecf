"""The rings of a process: loaded from a directory, checked every few seconds, replaced as a whole.

A ring that can't be loaded never replaces a loaded one: the last good one stays, the reason is logged, and the files
are tried again when they change. With a cache directory the last good ring also survives a restart: a service that
starts while a ring is half-updated serves with the one before. A service may start before its rings are there; until
then it is not ready and its answers are Unavailable.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from prometheus_client import Counter, Gauge

from swiftlet.errors import Unavailable
from swiftlet.main.background import in_background
from swiftlet.main.ring_files import RingFiles, Signature
from swiftlet.main.ring_names import ACCOUNT, CONTAINER, object_ring
from swiftlet.ring import codec
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import RingError
from swiftlet.settings import ServiceSettings
from swiftlet.web.health import READINESS
from swiftlet.web.logs import get_logger
from swiftlet.web.statusz import STATUS

VERSION = Gauge(
    "swiftlet_ring_version", "Version of the ring in use, 0 when none is.", ["ring"], multiprocess_mode="livemin"
)
STALE = Gauge(
    "swiftlet_ring_stale",
    "1 while what is in the rings directory can't be used, so that an earlier ring is, or none.",
    ["ring"],
    multiprocess_mode="livemax",
)
FAILURES = Counter("swiftlet_ring_load_failures_total", "Ring files that could not be used.", ["ring"])

_log = get_logger("rings")


@dataclass(slots=True)
class _Slot:
    """One ring: its files, the ring in use, the content that was tried last, and the reason of its failure."""

    files: RingFiles
    ring: Ring | None = None
    tried: Signature | None = None
    problem: str = "not looked for yet"
    needed: bool = True
    """Whether the process is not ready without this ring."""


class RingSet:
    """The rings that one process uses; implements `swiftlet.placement.rings.Rings`."""

    def __init__(self, directory: Path, names: Sequence[str], cache: Path | None = None) -> None:
        """Use the rings `names` with files in `directory`; none is loaded yet. Good ones are stored in `cache`."""
        self._cache = cache
        self._directory = directory
        self._slots: dict[str, _Slot] = {}
        for name in names:
            self._put(name, needed=True)

    def _put(self, name: str, *, needed: bool) -> None:
        self._slots[name] = _Slot(RingFiles(self._directory, name), needed=needed)
        VERSION.labels(name).set(0)
        STALE.labels(name).set(1)

    @classmethod
    def of(
        cls, settings: ServiceSettings, *, account: bool = True, container: bool = True, objects: bool = True
    ) -> RingSet:
        """Return the rings that a service needs, loaded as far as they are there."""
        names = [ACCOUNT] * account + [CONTAINER] * container
        names += [object_ring(policy.index) for policy in settings.load_policies()] if objects else []
        cache = settings.cluster.ring_cache
        # Containers of one pod may share the directory, and each is process 1: their temporary files would collide.
        rings = cls(settings.cluster.rings, names, cache / settings.service if cache is not None else None)
        rings.refresh()
        return rings

    def account(self) -> Ring:
        """Return the ring of account databases. Raises Unavailable while there is none."""
        return self._get(ACCOUNT)

    def container(self) -> Ring:
        """Return the ring of container databases. Raises Unavailable while there is none."""
        return self._get(CONTAINER)

    def objects(self, policy: int) -> Ring:
        """Return the ring of a policy's objects. Raises Unavailable while there is none."""
        return self._get(object_ring(policy))

    def find(self, name: str) -> Ring | None:
        """Return the ring of this name, None when it is not loaded or not one of ours."""
        slot = self._slots.get(name)
        return None if slot is None else slot.ring

    def _get(self, name: str) -> Ring:
        slot = self._slots.get(name)
        if slot is None:
            raise Unavailable(f"no ring {name} is configured")
        if slot.ring is None:
            raise Unavailable(f"the ring {name} is not loaded: {slot.problem}")
        return slot.ring

    def add(self, name: str) -> None:
        """Add a ring from now on; until it is loaded the process is as ready as without it. Blocks."""
        if name not in self._slots:
            self._put(name, needed=False)
            self._refresh(name, self._slots[name])

    def forget(self, name: str) -> None:
        """Remove a ring, also from the cache, because its policy was retired. Blocks."""
        if self._slots.pop(name, None) is None:
            return
        STALE.labels(name).set(0)
        VERSION.labels(name).set(0)
        if self._cache is not None:
            (self._cache / f"{name}.ring").unlink(missing_ok=True)
        _log.info("a ring is no longer used and has been unloaded", ring=name)

    def has(self, name: str) -> bool:
        """Return whether a ring is loaded."""
        return self.find(name) is not None

    def missing(self) -> str | None:
        """Return why needed rings are missing, None when none is; for readiness."""
        slots = list(self._slots.items())
        absent = [f"{name}: {slot.problem}" for name, slot in slots if slot.ring is None and slot.needed]
        return "; ".join(absent) or None

    def versions(self) -> dict[str, int | None]:
        """Return the versions in use by ring name, None for a ring that is not loaded; for the status report."""
        return {name: None if slot.ring is None else slot.ring.version for name, slot in list(self._slots.items())}

    def refresh(self) -> list[str]:
        """Check the files and load those that changed; return the names of the new rings. Blocks."""
        return [name for name, slot in list(self._slots.items()) if self._refresh(name, slot)]

    def _refresh(self, name: str, slot: _Slot) -> bool:
        try:
            signature = slot.files.signature()
            if signature == slot.tried:
                return False
            slot.tried = signature
            ring = slot.files.load()
            _check_successor(slot.ring, ring)
        except OSError as error:
            slot.tried = None
            return self._refused(name, slot, f"{slot.files}: {error.strerror}")
        except RingError as error:
            return self._refused(name, slot, f"{slot.files}: {error}")
        slot.problem = ""
        STALE.labels(name).set(0)
        if slot.ring == ring:
            return False
        self._use(name, slot, ring)
        self._keep(name, ring)
        return True

    def _use(self, name: str, slot: _Slot, ring: Ring, **origin: str) -> None:
        slot.ring = ring
        VERSION.labels(name).set(ring.version)
        _log.info("a ring has been loaded", ring=name, version=ring.version, part_power=ring.part_power, **origin)

    def _refused(self, name: str, slot: _Slot, problem: str) -> bool:
        if problem != slot.problem:
            slot.problem = problem
            STALE.labels(name).set(1)
            FAILURES.labels(name).inc()
            in_use = slot.ring.version if slot.ring is not None else None
            _log.warning("a ring can't be used", ring=name, problem=problem, version_in_use=in_use)
        return slot.ring is None and self._recall(name, slot)

    def _keep(self, name: str, ring: Ring) -> None:
        """Store a good ring in the cache; if that fails, only the next start has a disadvantage."""
        if self._cache is None:
            return
        try:
            # Parents are not created: a device that is not mounted must not be created on the file system below it.
            self._cache.parent.mkdir(exist_ok=True)
            self._cache.mkdir(exist_ok=True)
            codec.save(ring, self._cache / f"{name}.ring")
        except OSError as error:
            _log.warning(
                "a ring could not be saved in the cache", ring=name, path=str(self._cache), problem=error.strerror
            )

    def _recall(self, name: str, slot: _Slot) -> bool:
        """Take the last good ring from the cache; return whether there was one."""
        if self._cache is None:
            return False
        path = self._cache / f"{name}.ring"
        try:
            ring = codec.load(path)
        except FileNotFoundError:
            return False
        except (OSError, RingError) as error:
            _log.warning("a ring in the cache can't be used", ring=name, path=str(path), problem=str(error))
            return False
        self._use(name, slot, ring, cache=str(path))
        return True


def _check_successor(before: Ring | None, after: Ring) -> None:
    if before is not None and before.part_power != after.part_power:
        raise RingError(
            f"part_power changed from {before.part_power} to {after.part_power}: objects "
            "would no longer be found; part_power of a ring can't be changed"
        )


RINGS = web.AppKey("rings", RingSet)


def use_rings(app: web.Application, rings: RingSet, interval_s: float) -> None:
    """Keep the rings of `app` up to date while it runs, and add them to its readiness and its status report."""
    app[RINGS] = rings
    app[READINESS].add("rings", rings.missing)
    app[STATUS].add("rings", rings.versions)

    async def watched(_app: web.Application) -> AsyncIterator[None]:
        async with watching(rings, interval_s):
            yield

    app.cleanup_ctx.append(watched)


def hand_out_rings(app: web.Application, rings: RingSet) -> None:
    """Answer `GET /rings/NAME` with a ring in use, so that a cluster that has lost its own copies gets it back."""

    async def give(request: web.Request) -> web.Response:
        ring = rings.find(request.match_info["ring"])
        if ring is None:
            raise web.HTTPNotFound(text="this ring is not in use here\n")
        body = await asyncio.to_thread(codec.encode, ring)
        return web.Response(body=body, content_type="application/octet-stream")

    app.router.add_get("/rings/{ring}", give)


@asynccontextmanager
async def watching(rings: RingSet, interval_s: float) -> AsyncIterator[None]:
    """Check for new rings every `interval_s` seconds within the block."""

    async def watch() -> None:
        while True:
            await asyncio.sleep(interval_s)
            await asyncio.to_thread(rings.refresh)

    async with in_background(watch):
        yield
