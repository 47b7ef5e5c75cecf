"""Reconciles one cluster in one call: look, decide, write, report. Idempotent, and independent of what
happened before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from swiftlet.crd import Fact
from swiftlet.errors import SettingsError
from swiftlet_operator.apply import announce, apply, release
from swiftlet_operator.kube import Kube
from swiftlet_operator.manifests import CLUSTER, POLICY_FINALIZER, SECRET, Manifest, finalizers_of, name_of
from swiftlet_operator.members import Read, read_over_https
from swiftlet_operator.metrics import ClusterNumbers, Clusters
from swiftlet_operator.observe import SATELLITES, observe, refers
from swiftlet_operator.plan import Fresh, StatusOf, decide
from swiftlet_operator.plan.keys import key_made_s
from swiftlet_operator.plan.retire import unguarded
from swiftlet_operator.plan.upgrades import TIMED_OUT, Turn, alone
from swiftlet_operator.problems import KubeForbidden, KubeUnavailable
from swiftlet_operator.recovery import NO_KEYS, Recovery
from swiftlet_operator.rings import Rebalance, Rebalancer
from swiftlet_operator.status import write_statuses
from swiftlet_operator.statusz import Reporter
from swiftlet_operator.world import Defaults

_log = logging.getLogger(__name__)
_ROLE = "the operator's role lacks a rule that the chart has"


@dataclass(frozen=True, slots=True)
class Key:
    """A cluster by name."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Reconciler:
    """What reconciling needs besides the cluster's name.

    `may_write` raises NotLeader, `now_s` is the wall clock, `reporter` asks the cluster's pods for reports,
    `rebalancer` is for the rings of one cluster, `turns` for its restarts among those of others, `recovery` has the
    keys that open sealed copies, `read` reads ConfigMaps of other members of a federation, and `clusters` receives what
    Prometheus is shown.
    """

    kube: Kube
    defaults: Defaults
    fresh: Fresh
    may_write: Callable[[], None]
    now_s: Callable[[], int]
    reporter: Reporter
    rebalancer: Callable[[Key], Rebalancer] = lambda _: Rebalance.run
    turns: Callable[[Key], Turn] = lambda _: alone
    recovery: Recovery | None = None
    clusters: Clusters = field(default_factory=lambda: Clusters(lambda: True))
    read: Read = read_over_https

    async def reconcile(self, key: Key) -> float | None:
        """Bring a cluster into the specified state as far as possible now; return seconds until the next look.

        Raises KubeError when reading failed, or KubeUnavailable when something could not be written: try again.
        """
        now_s = self.now_s()
        manifest = await self.kube.get(CLUSTER, key.namespace, key.name)
        if manifest is None:
            self.clusters.forget(key.namespace, key.name)
            self.turns(key)(False, False, False)
            await self._without_cluster(key, now_s)
            return None
        try:
            known = await self.recovery.known() if self.recovery is not None else NO_KEYS
            world = await observe(self.kube, self.reporter, manifest, now_s, known, self.read)
        except SettingsError as error:
            await self._unreadable(manifest, str(error), now_s)
            return None
        except KubeForbidden as error:
            await self._tell(manifest, [Fact("Ready", "False", "Forbidden", f"{_ROLE}: {error}")], now_s)
            raise
        # Rings and hashes take long; other clusters and the probes don't wait for them.
        actions = await asyncio.to_thread(
            decide, world, self.defaults, self.fresh, self.rebalancer(key), self.turns(key)
        )
        written = await apply(self.kube, world, actions, self.may_write)
        if actions.release and not written.failures:
            await release(self.kube, world, self.may_write)
            self.clusters.forget(key.namespace, key.name)
            self.turns(key)(False, False, False)
            return None
        statuses = _with_failures(actions.status, written.failures)
        self._show(key, statuses, key_made_s(world.child(SECRET, f"{key.name}-keys")))
        told = await write_statuses(self.kube, key.namespace, statuses, now_s, self.may_write, world.own)
        await announce(self.kube, world, actions.events, self.may_write)
        if written.count or told:
            _log.info("%d objects and %d statuses of %s/%s were written", written.count, told, key.namespace, key.name)
        if written.failures:
            raise KubeUnavailable("; ".join(written.failures))
        return actions.again_in_s

    async def _unreadable(self, manifest: Manifest, problem: str, now_s: int) -> None:
        facts = [Fact("Ready", "False", "Unreadable", problem), Fact("SpecValid", "False", "Unreadable", problem)]
        await self._tell(manifest, facts, now_s)

    async def _tell(self, manifest: Manifest, facts: Sequence[Fact], now_s: int) -> None:
        metadata = manifest["metadata"]
        status = StatusOf(CLUSTER, name_of(manifest), int(metadata.get("generation") or 0), tuple(facts))
        self._show(Key(metadata["namespace"], name_of(manifest)), [status])
        await write_statuses(self.kube, metadata["namespace"], [status], now_s, self.may_write)

    async def _without_cluster(self, key: Key, now_s: int) -> None:
        """Update objects that name a cluster which does not exist."""
        message = f"there is no StorageCluster {key.name} in this namespace; make it, or correct spec.clusterRef"
        fact = Fact("Ready", "False", "ClusterMissing", message)
        for kind in SATELLITES:
            found = [one for one in await self.kube.list(kind, key.namespace) if refers(one, key.name)]
            statuses = [
                StatusOf(kind, name_of(one), int(one["metadata"].get("generation") or 0), (fact,)) for one in found
            ]
            await self._let_go(key, [one for one in found if POLICY_FINALIZER in finalizers_of(one)])
            await write_statuses(self.kube, key.namespace, statuses, now_s, self.may_write)

    async def _let_go(self, key: Key, policies: Sequence[Manifest]) -> None:
        """Release policies of a cluster that is gone, as nobody could ever prove that nothing is left of them."""
        for one in policies:
            self.may_write()
            patch = unguarded(one)
            await self.kube.patch(patch.kind, key.namespace, patch.name, patch.change)

    def _show(self, key: Key, statuses: Sequence[StatusOf], made_s: float | None = None) -> None:
        """Show Prometheus the conditions of the cluster's status."""
        facts = [fact for one in statuses if one.kind == CLUSTER for fact in one.facts]
        conditions = {fact.type: fact.status for fact in facts}
        late = any(fact.reason == TIMED_OUT for fact in facts)
        self.clusters.show(key.namespace, key.name, ClusterNumbers(conditions, made_s, late))


def _with_failures(statuses: Sequence[StatusOf], failures: Sequence[str]) -> list[StatusOf]:
    """Return the statuses when something could not be written: they say so, and that it will be tried again."""
    if not failures:
        return list(statuses)
    fact = Fact("Progressing", "False", "ApplyFailed", "; ".join(failures))
    return [replace(one, facts=(*one.facts, fact)) if one.kind == CLUSTER else one for one in statuses]
