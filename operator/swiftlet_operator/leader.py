"""Leader election: only the holder of a Lease may write. This is checked before every write.

Peering alone prevents no writes. The lease is held for its life from the last renewal *by our own clock, taken before
the request*: a holder that can't renew stops writing before anybody else may begin. Others wait until they have seen
the same renewal for that long by their own clock; clocks need not agree.

The lease is in the operator's own namespace. Operators in other namespaces have leases of the same name, which say what
each of them manages. An operator that begins to lead and finds such a lease for a namespace of its own steps back until
that one has ended. It looks after it has taken its own lease, so that of two that begin at the same time at least one
sees the other.

An operator of certain namespaces may have no right to list leases elsewhere, because nobody grants it a ClusterRole. It
then leads by its own lease alone and logs that. One that manages all namespaces does not lead without that right.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from swiftlet_operator.kube import Kube
from swiftlet_operator.manifests import LEASE, MANAGER, WATCHES, Manifest, annotations_of
from swiftlet_operator.problems import KubeConflict, KubeError, KubeForbidden, NotLeader

LIFE_S = 30.0
"""The default life of the lease in seconds: nobody writes for so long after a leader has died."""
SHORTEST_LIFE_S = 3.0
_RENEWALS = 4
"""How often a lease is renewed in its life."""
MARGIN_PART = 1 / 6
"""The share of the life that is not used, as a request that was sent while we led may arrive a little later."""

_log = logging.getLogger(__name__)


class Leader:
    """One candidate for the Lease."""

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        identity: str,
        monotonic: Callable[[], float],
        life_s: float = LIFE_S,
        watched: Sequence[str] = (),
    ) -> None:
        """`identity` must be unique, such as the pod's name with its uid; `life_s` is the same for all candidates.

        `watched` are the namespaces that the holder may write to, all when none is named.
        """
        self._life_s = life_s
        self._kube = kube
        self._namespace = namespace
        self._identity = identity
        self._monotonic = monotonic
        self._until = float("-inf")
        self._watched = frozenset(watched)
        self._seen: dict[str, tuple[tuple[str, str], float]] = {}
        """Holder and renewal of the lease of each namespace, and when they were first seen."""
        self._waits_for = ""
        self._told_blind = False

    @property
    def leads(self) -> bool:
        """Whether we may write right now."""
        return self._monotonic() < self._until - self._life_s * MARGIN_PART

    def require(self) -> None:
        """Raise NotLeader unless we may write right now."""
        if not self.leads:
            raise NotLeader(f"{self._identity} does not hold the lease {MANAGER}")

    async def run(self) -> None:
        """Take and renew the lease until cancelled; then give it back."""
        try:
            while True:
                await self.attempt()
                await asyncio.sleep(self._life_s / _RENEWALS)
        finally:
            await self._give_back()

    async def attempt(self) -> None:
        """Take or renew the lease if possible."""
        before = self._monotonic()
        try:
            if await self._hold():
                if not self.leads:
                    _log.info("%s leads", self._identity)
                self._until = before + self._life_s
        except KubeConflict:
            self._until = float("-inf")
        except KubeError as error:
            _log.warning("the lease could not be renewed: %s", error)

    async def _hold(self) -> bool:
        live = await self._kube.get(LEASE, self._namespace, MANAGER)
        holder = ((live or {}).get("spec") or {}).get("holderIdentity") or ""
        if live is not None and holder not in ("", self._identity) and not self._expired(live, self._life_s):
            self._until = float("-inf")
            return False
        led = self.leads
        if not led and await self._taken_elsewhere():
            return False
        if live is None:
            await self._kube.create(self._lease({"name": MANAGER, "namespace": self._namespace}, 0))
        else:
            transitions = int((live.get("spec") or {}).get("leaseTransitions") or 0) + (holder != self._identity)
            await self._kube.replace(self._lease(live["metadata"], transitions))
        if not led and await self._taken_elsewhere():
            await self._free()
            return False
        return True

    async def _taken_elsewhere(self) -> bool:
        """Return whether the operator of another namespace holds its lease for a namespace that we manage too."""
        for one in await self._leases():
            spec = one.get("spec") or {}
            holder, namespace = spec.get("holderIdentity") or "", one["metadata"]["namespace"]
            if not holder or namespace == self._namespace or not self._overlaps(one):
                continue
            if self._expired(one, float(spec.get("leaseDurationSeconds") or LIFE_S)):
                continue
            if self._waits_for != holder:
                self._waits_for = holder
                _log.warning(
                    "%s in namespace %s looks after namespaces that are this operator's too, which waits until it has"
                    " ended; uninstall one of them, or let them watch different namespaces",
                    holder,
                    namespace,
                )
            return True
        self._waits_for = ""
        return False

    async def _leases(self) -> list[Manifest]:
        """Return the operators' leases in all namespaces; none when we manage certain ones and may not list leases."""
        try:
            return await self._kube.named(LEASE, MANAGER)
        except KubeForbidden as error:
            if not self._watched:
                raise
            if not self._told_blind:
                self._told_blind = True
                _log.warning(
                    "operators in other namespaces can't be seen: the role does not allow listing the leases named %s"
                    " of all namespaces (%s); see to it yourself that no other operator watches %s",
                    MANAGER,
                    error,
                    ", ".join(sorted(self._watched)),
                )
            return []

    def _overlaps(self, lease: Manifest) -> bool:
        theirs = frozenset(filter(None, annotations_of(lease).get(WATCHES, "").split(",")))
        return not theirs or not self._watched or bool(theirs & self._watched)

    def _expired(self, lease: Manifest, life_s: float) -> bool:
        """Return whether we have seen the same renewal of a lease for its life."""
        spec, namespace = lease["spec"], lease["metadata"]["namespace"]
        mark = (str(spec.get("holderIdentity")), str(spec.get("renewTime")))
        if namespace not in self._seen or self._seen[namespace][0] != mark:
            self._seen[namespace] = (mark, self._monotonic())
        return self._monotonic() - self._seen[namespace][1] > life_s

    def _lease(self, metadata: Manifest, transitions: int) -> Manifest:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        annotations = {**(metadata.get("annotations") or {}), WATCHES: ",".join(sorted(self._watched))}
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {**metadata, "annotations": annotations},
            "spec": {
                "holderIdentity": self._identity,
                # The field has whole seconds; it must not be less than we count on.
                "leaseDurationSeconds": math.ceil(self._life_s),
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }

    async def _give_back(self) -> None:
        if not self.leads:
            return
        self._until = float("-inf")
        try:
            await self._free()
        except KubeError as error:
            _log.warning("the lease could not be given back: %s", error)

    async def _free(self) -> None:
        live = await self._kube.get(LEASE, self._namespace, MANAGER)
        if live is not None and (live.get("spec") or {}).get("holderIdentity") == self._identity:
            await self._kube.replace({**live, "spec": {**live["spec"], "holderIdentity": ""}})
