"""Random writes in three regions, of which one may be cut off: what a region acknowledged, it reads; what any region
acknowledged is found while all can be reached, and is everywhere in the end.

Fault model: one region at a time has no link to the others. Beside that, in each region one device at a time can't be
reached, is silent or busy. Proxies' clocks differ by seconds, so that a later write may be the older one. Replicators
run in between, and may be cut off as well. Whatever was refused may have happened all the same.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path as Directory

import pytest

from swiftlet.errors import NotFound, Superseded, Unavailable
from swiftlet.model import Kind
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, at
from swiftlet.placement.tests.sites import REGIONS, Site, Sites, sites
from swiftlet.ring.model import Device
from swiftlet.timestamp import ZERO, Timestamp

STEPS = 300
PATHS = [Path(ACCOUNT, CONTAINER, f"o{number}") for number in range(4)]
AILMENTS = ("unreachable", "silent", "busy")
SKEW_S = {"east": 0.0, "north": 3.3, "west": -4.4}


@dataclass
class Written:
    """What happened to one object, by the times of its versions."""

    bodies: dict[Timestamp, bytes] = field(default_factory=dict)
    deletions: set[Timestamp] = field(default_factory=set)
    """Of all that were tried."""
    put: Timestamp = ZERO
    """The newest version that was acknowledged anywhere."""
    changed: dict[str, Timestamp] = field(default_factory=lambda: dict.fromkeys(REGIONS, ZERO))
    """The newest version or deletion that was acknowledged in each region."""
    posted: dict[str, Timestamp] = field(default_factory=lambda: dict.fromkeys(REGIONS, ZERO))
    """The newest POST that was acknowledged in each region."""


class History:
    """One run from a seed."""

    def __init__(self, made: Sites, seed: int) -> None:
        self.sites = made
        self.random = random.Random(seed)
        self.written = {path: Written() for path in PATHS}
        self.second = 100.0
        self.cut: str | None = None
        self.ailing: dict[str, tuple[Device, str]] = {}
        self.done = dict.fromkeys(("put", "post", "delete", "read", "newest", "refused", "absent"), 0)

    def fault(self) -> None:
        """Something breaks, or is mended."""
        if self.random.random() < 0.4:
            if self.cut is not None:
                self.sites.isolate(self.cut, False)
            self.cut = self.random.choice((None, *REGIONS)) if self.cut is None else None
            if self.cut is not None:
                self.sites.isolate(self.cut)
            return
        region = self.random.choice(REGIONS)
        self.heal(region)
        if self.random.random() < 0.7:
            device, ailment = self.random.choice(self.sites[region].near()), self.random.choice(AILMENTS)
            self.ailing[region] = device, ailment
            self.mark(device, ailment, True)

    def heal(self, region: str) -> None:
        """Make a region's devices well."""
        if region in self.ailing:
            self.mark(*self.ailing.pop(region), False)

    def mark(self, device: Device, ailment: str, is_so: bool) -> None:
        """Let a device be so for everybody who has a link to it."""
        for site in self.sites:
            is_cut = self.cut in (site.place.region, device.region) and site.place.region != device.region
            if not is_cut or ailment != "unreachable":
                setattr(site.transport.link(device), ailment, is_so)

    def ails(self, device: Device) -> bool:
        """Whether a device is in trouble."""
        return device in (one for one, _ in self.ailing.values())

    async def step(self) -> None:
        """One thing that happens."""
        self.second += 1
        region, path = self.random.choice(REGIONS), self.random.choice(PATHS)
        site = self.sites[region]
        kinds = ("put", "upload", "post", "delete", "read", "newest", "fault", "replicate")
        kind = self.random.choices(kinds, (6, 3, 3, 3, 8, 2, 5, 1))[0]
        if kind == "delete" and path == PATHS[0]:
            # No deletion hides what has become of POSTs here.
            kind = "post"
        if kind == "fault":
            self.fault()
        elif kind == "replicate":
            await site.replicate()
        elif kind in ("read", "newest"):
            await self.check(site, path, kind == "newest")
        else:
            await self.write(site, path, kind)

    async def write(self, site: Site, path: Path, kind: str) -> None:
        """A write; what is acknowledged is noted for its region."""
        region, second = str(site.place.region), self.second + SKEW_S[str(site.place.region)]
        stamp, known = at(second), self.written[path]
        body = self.random.randbytes(self.random.randrange(2500))
        if kind == "delete":
            known.deletions.add(stamp)
        elif kind != "post":
            known.bodies[stamp] = body
        try:
            if kind == "put":
                await site.put(second, body, path)
            elif kind == "upload":
                await site.upload(second, body, path)
            elif kind == "post":
                await site.post(second, path)
            elif not (await site.delete(second, path)).existed:
                self.must_be_gone(site, path, stamp)
        except Unavailable:
            self.done["refused"] += 1
            return
        except NotFound:
            assert kind == "post"
            self.must_be_gone(site, path, stamp)
            return
        except Superseded:
            return
        if kind == "post":
            self.done["post"] += 1
            known.posted[region] = max(known.posted[region], stamp)
            return
        self.done["delete" if kind == "delete" else "put"] += 1
        known.changed[region] = max(known.changed[region], stamp)
        if kind != "delete":
            known.put = max(known.put, stamp)

    def must_be_gone(self, site: Site, path: Path, but: Timestamp = ZERO) -> None:
        """Absence is true, as far as whoever says so can reach everybody."""
        self.done["absent"] += 1
        known = self.written[path]
        if self.cut is None:
            assert known.put == ZERO or any(known.put < one for one in known.deletions - {but}), path
        region = str(site.place.region)
        mine = known.changed[region]
        gone = any(mine <= one for one in known.deletions - {but})
        assert mine == ZERO or gone, f"{path} was acknowledged in {region}"

    async def check(self, site: Site, path: Path, newest: bool) -> None:
        """A read gives what its region has acknowledged, or something newer; a newest one what any has."""
        known, region = self.written[path], str(site.place.region)
        if not newest and self.cut == region and self.ails(self.sites.primary(region, path)):
            # It may have nothing left but a copy that was not handed back yet.
            return
        least = max(known.changed.values()) if newest else known.changed[region]
        try:
            download = await site.objects.get(path, 0, newest=newest)
            body = b"".join([chunk async for chunk in download.chunks()])
        except NotFound:
            self.must_be_gone(site, path)
            assert not newest or known.put == ZERO or any(known.put < one for one in known.deletions)
            return
        except Unavailable:
            self.done["refused"] += 1
            return
        info = download.info
        self.done["newest" if newest else "read"] += 1
        assert known.bodies[info.timestamp] == body
        assert info.timestamp >= least, f"{path} in {region}: {info.timestamp} is older than {least}"
        if info.timestamp == known.changed[region] and path == PATHS[0]:
            # What another region has written since shows the POST when both have met.
            assert max(info.timestamp, info.meta_timestamp) >= known.posted[region]

    async def end(self) -> None:
        """Everything is well again: all replicas have the newest of what was acknowledged, or something newer."""
        if self.cut is not None:
            self.sites.isolate(self.cut, False)
            self.cut = None
        for region in REGIONS:
            self.heal(region)
        await self.sites.rounds(3)
        cluster = self.sites.cluster
        for path, known in self.written.items():
            for site in self.sites:
                await self.check(site, path, newest=False)
            entries = [cluster.entry(device, cluster.key(path)) for device in cluster.primaries(path)]
            assert len(set(entries)) == 1, path
            entry, acknowledged = entries[0], max(known.changed.values())
            assert (ZERO if entry is None else entry.timestamp) >= acknowledged, path
            if path == PATHS[0]:
                assert entry is None or max(entry.timestamp, entry.meta_timestamp) >= max(known.posted.values())
            if entry is not None:
                kept = known.deletions if entry.kind is Kind.TOMBSTONE else known.bodies.keys()
                assert entry.timestamp in kept
            standing = [d for d in cluster.devices if d not in cluster.primaries(path)]
            assert not [d.name for d in standing if cluster.info(d, path)], "debts are paid"


@pytest.mark.parametrize("seed", range(4))
async def test_what_a_region_acknowledges_is_kept_and_found(tmp_path: Directory, seed: int) -> None:
    async with sites(tmp_path, "local") as made:
        history = History(made, seed)
        for _ in range(STEPS):
            await history.step()
        await history.end()
    assert all(history.done.values()), history.done
