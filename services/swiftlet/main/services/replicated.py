"""The data that a replicator works on: the objects of some devices, or the databases of some container servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aiohttp import web

from swiftlet.boundaries.objects import ObjectTransport
from swiftlet.errors import SettingsError, Unavailable
from swiftlet.main.neighbours import LocalDevices, make_neighbours
from swiftlet.main.nodes import use_listing_transport, use_object_transport
from swiftlet.main.policies import use_policies
from swiftlet.main.ring_names import object_ring
from swiftlet.main.rings import RingSet, use_rings
from swiftlet.main.services.container_sync import use_container_sync
from swiftlet.main.services.expirer import nodes_of, use_expirer
from swiftlet.main.services.listing_audit import use_objects_audit, use_rows_audit
from swiftlet.model import DatabaseKind
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.settings import ReplicatorSettings
from swiftlet.sync.coded.backlog import Bounds
from swiftlet.sync.coded.fates import Watch
from swiftlet.sync.coded.packing import PackLimits, PackRounds
from swiftlet.sync.coded.repairer import CodedRepairer
from swiftlet.sync.databases.entries import POLICIES, RING_NAMES, RINGS, ring_name
from swiftlet.sync.databases.patience import IMPATIENT, Limits, Patience
from swiftlet.sync.databases.replica_kind import database_replicas
from swiftlet.sync.failures.redis_table import Notices
from swiftlet.sync.moving.pacing import LinkBudget, Pace
from swiftlet.sync.moving.replica_kind import ReplicaKind
from swiftlet.sync.planning.proving import Proving
from swiftlet.sync.replicator import Replicator
from swiftlet.sync.session.far import Fetching
from swiftlet.sync.session.topology import ROUND_MODES
from swiftlet.transport.native_coded_packs import NativeCodedPacker
from swiftlet.transport.native_coded_repair import NativeCodedRepair

QUIET = 0.6
"""The share of the time between two rounds for which a database must not change to count as unchanging."""
_LONGEST_QUIET_S = 3.0


@dataclass(frozen=True, slots=True)
class Work:
    """A replicator, and what its rounds are about."""

    replicator: Replicator
    rings: RingSet
    interval_s: float
    indexes: Callable[[], Sequence[int]]
    """A function that returns the policies, or the numbers that stand for the rings of databases."""
    names: Callable[[int], str]
    """A function that returns the name of one of them for the command line."""
    ring_name: Callable[[int], str]
    group: str
    """The services that share a failure table with this one: the replicators of the same kind of servers."""
    notices: Notices
    """Notices for those replicators; without a Redis none are sent, and the oldest are dropped."""
    repairer: CodedRepairer | None = None
    """What repairs objects with erasure coding; None where there are none."""
    packs: PackRounds | None = None
    """What packs small objects with erasure coding; None where there are none, and in a round by hand."""
    coded: Callable[[], Sequence[int]] = list
    """A function that returns the policies with erasure coding."""

    def chosen(self, name: str | None) -> tuple[list[int], list[int]]:
        """Return the indexes of the policy with this name, or all for None: of those without and with erasure coding.

        Raises SettingsError.
        """
        named = lambda index: name is None or self.names(index).lower() == name.lower()  # noqa: E731
        found, coded = list(filter(named, self.indexes())), list(filter(named, self.coded()))
        if not (found or coded):
            known = ", ".join(map(self.names, [*self.indexes(), *self.coded()]))
            raise SettingsError(f"--policy {name}: there is no such policy; the policies are: {known}")
        return found, coded

    def ring(self, index: int) -> Ring:
        """Return the ring that an index stands for. Raises Unavailable."""
        kind = RINGS.get(index)
        return self.rings.objects(index) if kind is None else database_ring(self.rings, kind)


def use_work(app: web.Application, settings: ReplicatorSettings, *, by_hand: bool = False) -> Work:
    """Return the work that the settings name.

    `by_hand` is for one round, beside a replicator that runs an expirer and is patient.
    """
    if settings.replicator.databases:
        return _databases(app, settings, by_hand)
    return _objects(app, settings, by_hand)


def _objects(app: web.Application, settings: ReplicatorSettings, by_hand: bool) -> Work:
    section = settings.replicator
    rings = RingSet.of(settings, account=False, container=False)
    use_rings(app, rings, settings.cluster.ring_check_interval_s)
    policies = use_policies(app, settings, rings)
    transport = use_object_transport(app, settings.cluster, section, settings.service)
    if not by_hand:
        use_expirer(app, settings, rings, policies, transport)
        use_container_sync(app, settings, rings, policies, transport, lambda: nodes_of(rings, policies))
        use_objects_audit(app, settings, rings, policies, transport)
    notices, links = Notices(), LinkBudget(section.link_bytes_per_s)
    replicator = _replicator(
        settings,
        links,
        section.devices,
        rings.objects,
        policies.of_copies,
        transport,
        notices,
        Proving(transport),
        # A round by hand brings what is lacking itself.
        None if by_hand else Fetching(),
    )
    name_of = lambda index: next(policy.name for policy in policies if policy.index == index)  # noqa: E731
    repairer = CodedRepairer(
        LocalDevices(section.devices),
        rings.objects,
        policies.coding,
        transport,
        NativeCodedRepair(transport.coded),
        replicator.neighbours,
        Watch(section.coded_recovery_after_s),
        Bounds(section.coded_max_fragments, section.coded_max_bytes),
        replicator.standings,
        Pace(section.concurrency, section.bytes_per_s, links=links),
        settings.cluster.reclaim_age_s,
        names=name_of,
    )
    packs = PackRounds(
        LocalDevices(section.devices),
        rings.objects,
        policies.coding,
        policies.pack_below,
        transport,
        NativeCodedPacker(transport.coded),
        replicator.neighbours,
        PackLimits(
            section.pack_after_s,
            section.pack_least_bytes,
            section.pack_most_bytes,
            section.pack_round_bytes,
            section.pack_live_share,
        ),
        Pace(section.concurrency, section.bytes_per_s),
    )
    return Work(
        replicator,
        rings,
        section.interval_s,
        # What lies on devices of coded policies are fragments, which rounds of copies would take for misplaced copies.
        lambda: policies.of_copies,
        name_of,
        object_ring,
        settings.cluster.name,
        notices,
        repairer,
        None if by_hand else packs,
        lambda: policies.coded,
    )


def _databases(app: web.Application, settings: ReplicatorSettings, by_hand: bool) -> Work:
    section = settings.replicator
    rings = RingSet.of(settings, objects=False)
    use_rings(app, rings, settings.cluster.ring_check_interval_s)
    transport = use_listing_transport(app, settings.cluster, section)
    patience = Patience(IMPATIENT if by_hand else patience_of(section.database_interval_s))
    replica_kind = database_replicas(transport, patience)
    if not by_hand:
        use_rows_audit(app, settings, rings, transport)
    indexes, notices = list(POLICIES.values()), Notices()
    ring = lambda index: database_ring(rings, RINGS[index])  # noqa: E731
    links = LinkBudget(section.link_bytes_per_s)
    replicator = _replicator(settings, links, section.databases, ring, indexes, replica_kind, notices)
    return Work(
        replicator,
        rings,
        section.database_interval_s,
        lambda: indexes,
        lambda index: RING_NAMES[RINGS[index]],
        ring_name,
        f"{settings.cluster.name}:databases",
        notices,
    )


def database_ring(rings: RingSet, kind: DatabaseKind) -> Ring:
    """Return the ring of a kind of databases. Raises Unavailable."""
    return rings.account() if kind is DatabaseKind.ACCOUNT else rings.container()


def patience_of(interval_s: float) -> Limits:
    """Return how patient rounds are that begin at this interval."""
    return Limits(quiet_s=min(_LONGEST_QUIET_S, QUIET * interval_s), rest_s=interval_s)


def _replicator(
    settings: ReplicatorSettings,
    links: LinkBudget,
    addresses: Sequence[str],
    ring: Callable[[int], Ring],
    indexes: Sequence[int],
    replica_kind: ObjectTransport | ReplicaKind,
    notices: Notices,
    proving: Proving | None = None,
    fetching: Fetching | None = None,
) -> Replicator:
    section = settings.replicator
    local = LocalDevices(addresses)
    known = [device for index in indexes for device in _devices(ring, local, index)]
    transport = replica_kind.transport if isinstance(replica_kind, ReplicaKind) else replica_kind
    return Replicator(
        local,
        ring,
        replica_kind,
        reclaim_age_s=settings.cluster.reclaim_age_s,
        pace=Pace(section.concurrency, section.bytes_per_s, links=links),
        neighbours=make_neighbours(settings, addresses, transport, known, notices),
        mode=ROUND_MODES[section.mode],
        proving=proving,
        fetching=fetching,
    )


def _devices(ring: Callable[[int], Ring], local: LocalDevices, index: int) -> Sequence[Device]:
    try:
        return local(ring(index))
    except Unavailable:
        return []
