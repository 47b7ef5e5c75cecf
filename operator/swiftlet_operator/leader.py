"""Who may write: the holder of a Lease. Checked before every write, for peering alone fences nobody off.

The lease is held for its life from the last renewal *by our own clock, taken before the request*: a holder that can't
renew stops writing before anybody else may begin. Others wait until they have seen the same renewal for that long by
their own clock; clocks need not agree.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from swiftlet_operator.kube import Kube
from swiftlet_operator.manifests import LEASE, MANAGER, Manifest
from swiftlet_operator.problems import KubeConflict, KubeError, NotLeader

LIFE_S = 30.0
"""Default of the lease's life: nobody writes for so long after a leader has died."""
SHORTEST_LIFE_S = 3.0
_RENEWALS = 4
"""A lease is renewed so often in its life."""
MARGIN_PART = 1 / 6
"""This part of the life is not used: a request that was sent while we led may arrive a little later."""

_log = logging.getLogger(__name__)


class Leader:
    """One candidate for the Lease."""

    def __init__(
        self, kube: Kube, namespace: str, identity: str, monotonic: Callable[[], float], life_s: float = LIFE_S
    ) -> None:
        """`identity` must be unique, such as the pod's name with its uid; `life_s` is the same for all candidates."""
        self._life_s = life_s
        self._kube = kube
        self._namespace = namespace
        self._identity = identity
        self._monotonic = monotonic
        self._until = float("-inf")
        self._seen: tuple[str, str] | None = None
        self._seen_at = 0.0

    @property
    def leads(self) -> bool:
        """Whether we may write right now."""
        return self._monotonic() < self._until - self._life_s * MARGIN_PART

    def require(self) -> None:
        """NotLeader unless we may write right now."""
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
        if live is None:
            await self._kube.create(self._lease({"name": MANAGER, "namespace": self._namespace}, 0))
            return True
        spec: dict[str, Any] = live.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder not in ("", self._identity) and not self._expired(holder, str(spec.get("renewTime"))):
            self._until = float("-inf")
            return False
        transitions = int(spec.get("leaseTransitions") or 0) + (holder != self._identity)
        await self._kube.replace(self._lease(live["metadata"], transitions))
        return True

    def _expired(self, holder: str, renewed: str) -> bool:
        if self._seen != (holder, renewed):
            self._seen, self._seen_at = (holder, renewed), self._monotonic()
        return self._monotonic() - self._seen_at > self._life_s

    def _lease(self, metadata: Manifest, transitions: int) -> Manifest:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": metadata,
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": int(self._life_s),
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }

    async def _give_back(self) -> None:
        if not self.leads:
            return
        self._until = float("-inf")
        try:
            live = await self._kube.get(LEASE, self._namespace, MANAGER)
            if live is not None and (live.get("spec") or {}).get("holderIdentity") == self._identity:
                released = {**live, "spec": {**live["spec"], "holderIdentity": ""}}
                await self._kube.replace(released)
        except KubeError as error:
            _log.warning("the lease could not be given back: %s", error)
