"""Pods that say of themselves what a test wants: by default all are in sync as of now, and hold what a ring gives them.

`silent` and `said` are the faults: pods that do not answer, and what single devices say instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from swiftlet.ring import Ring
from swiftlet_operator.manifests import COMPONENT_LABEL, Manifest, labels_of, name_of
from swiftlet_operator.redundancy import Repairs
from swiftlet_operator.reports import (
    SERVING,
    AccountsReport,
    DeviceReport,
    EncryptionReport,
    PoliciesReport,
    PolicyUse,
    RedisReport,
    Report,
    Reports,
    RingReport,
)

GIB = 1024**3
NEVER = 100_000_000_000
"""A generation of sealed keys that no test reaches."""
NEWEST = 1_000_000
"""A version that no test's ring reaches."""
IN_SYNC = RingReport(held=1, misplaced=0, behind=0, unchecked=0, ring_version=NEWEST)
RINGS = ("account", "container", *(f"object-{index}" for index in range(4)))
_SERVICES = {
    "storage": ("object", "replicator"),
    "container": ("container", "replicator"),
    "proxy": ("proxy",),
    "metadata": ("metadata",),
}


@dataclass
class Told:
    """Implements `swiftlet_operator.statusz.Reporter`.

    `silent`: pods without a report. `failed`: devices that don't serve. `rounds`: what all
    devices say of a ring unless `said` has something else for the device and ring; `synced_at_s` None there means now.
    `laid_out`: the newest version of each ring; `version`: no newer one is in use. `accounts`: what container
    servers have counted.
    `full`: used share of a device. `kept`: rings that pods hand out. `redis`: what replicators say of Redis, by pod.
    `repairs`: what replicators say of objects with erasure coding, by pod.
    `uses`: what container servers have just counted of deprecated policies, by pod. `users`: the version of the users
    file that a proxy uses, `workers` those of its processes, by pod.
    `encryption`: what a pod's services say of that.
    `sealed`: sealed copies of keys that a pod hands out; `sealed_generation`: of those that all devices report.
    """

    now_s: Callable[[], int]
    silent: set[str] = field(default_factory=set)
    rounds: RingReport = IN_SYNC
    said: dict[tuple[str, str], RingReport] = field(default_factory=dict)
    version: int = NEWEST
    versions: dict[str, int] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    full: dict[str, float] = field(default_factory=dict)
    keys: tuple[str, ...] = ("00000000",)
    keys_of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    transports: dict[str, Mapping[str, int]] = field(default_factory=dict)
    rdma_missing: dict[str, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    devices_per_pod: int = 2
    accounts: dict[str, AccountsReport] = field(default_factory=dict)
    laid_out: Callable[[], Mapping[str, int]] = lambda: dict.fromkeys(RINGS, NEWEST)
    kept: dict[str, Ring] = field(default_factory=dict)
    redis: dict[str, RedisReport] = field(default_factory=dict)
    repairs: dict[str, Repairs] = field(default_factory=dict)
    uses: dict[str, dict[int, PolicyUse]] = field(default_factory=dict)
    users: dict[str, str] = field(default_factory=dict)
    workers: dict[str, frozenset[str | None]] = field(default_factory=dict)
    encryption: Callable[[str], EncryptionReport | None] = lambda _pod: EncryptionReport("none", ready=True)
    sealed: dict[str, Sequence[bytes]] = field(default_factory=dict)
    sealed_generation: int = NEVER

    async def reports(self, pods: Sequence[Manifest]) -> Reports:
        return {
            name_of(pod): {service: self._report(pod, service) for service in self._services(pod)}
            for pod in pods
            if name_of(pod) not in self.silent
        }

    async def sealed_keys(self, pods: Sequence[Manifest]) -> Sequence[bytes]:
        return [one for pod in pods if name_of(pod) not in self.silent for one in self.sealed.get(name_of(pod), ())]

    async def ring(self, pods: Sequence[Manifest], ring: str) -> Ring | None:
        return self.kept.get(ring) if any(name_of(pod) not in self.silent for pod in pods) else None

    def _services(self, pod: Manifest) -> Sequence[str]:
        return _SERVICES.get(labels_of(pod).get(COMPONENT_LABEL, ""), ())

    def _report(self, pod: Manifest, service: str) -> Report:
        name = name_of(pod)
        return Report(
            service=service,
            version="test",
            started_at_s=float(self.now_s()),
            keys=self.keys_of.get(name, self.keys),
            rings={
                ring: min(newest, self.versions.get(name, self.version)) for ring, newest in self.laid_out().items()
            },
            transports=self.transports.get(name, {"http": 1}) if self._moves_objects(name, service) else {},
            rdma_missing=self.rdma_missing.get(name),
            devices=self._devices(name, service),
            accounts=self.accounts.get(name) if service == "container" else None,
            users=self.users.get(name) if service == "proxy" else None,
            workers=self.workers.get(name, frozenset()) if service == "proxy" else frozenset(),
            policies=self._policies(name) if service == "container" else None,
            sealed_keys={"d0": self.sealed_generation} if service in ("object", "container") else {},
            redis=self.redis.get(name, RedisReport("up")) if service == "replicator" else None,
            encryption=self.encryption(name),
            repairs=self.repairs.get(name) if service == "replicator" else None,
        )

    def _policies(self, pod: str) -> PoliciesReport | None:
        uses = self.uses.get(pod)
        return PoliciesReport(float(self.now_s()), uses) if uses is not None else None

    @staticmethod
    def _moves_objects(pod: str, service: str) -> bool:
        return service == "proxy" or (service == "replicator" and "-container" not in pod)

    def _devices(self, pod: str, service: str) -> dict[str, DeviceReport]:
        disks = [f"d{index}" for index in range(self.devices_per_pod)]
        if service == "object":
            return {disk: self._space(f"{pod}/{disk}", self.pending.get(f"{pod}/{disk}", 0)) for disk in disks}
        if service == "container":
            return {"db": self._space(f"{pod}/db", None)}
        if service == "replicator" and "-container" in pod:
            return {f"{pod}/db": DeviceReport(rings=self._rings(f"{pod}/db", RINGS[:2]))}
        if service == "replicator":
            return {f"{pod}/{disk}": DeviceReport(rings=self._rings(f"{pod}/{disk}", RINGS[2:])) for disk in disks}
        return {}

    def _space(self, device: str, pending: int | None) -> DeviceReport:
        state = "failed" if device in self.failed else SERVING
        free = int(10 * GIB * (1 - self.full.get(device, 0.1)))
        return DeviceReport(capacity_bytes=10 * GIB, free_bytes=free, state=state, pending=pending)

    def _rings(self, device: str, rings: Sequence[str]) -> dict[str, RingReport]:
        return {ring: self._round(self.said.get((device, ring), self.rounds)) for ring in rings}

    def _round(self, said: RingReport) -> RingReport:
        clean = said.misplaced == 0 and said.behind == 0 and said.unchecked == 0
        return replace(said, synced_at_s=float(self.now_s())) if clean and said.synced_at_s is None else said
