"""After two rounds of everything: objects, each replica of each listing, totals and the audit, held to one another.

Nothing here waits for replicas to become equal: rounds are begun by hand, and counted. What is waited for is what has
no rounds: updates that devices have pending, and the reports of containers to their account.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import md5

from prometheus_client.parser import text_string_to_metric_families

from e2e.standalone.cluster import Cluster, environment
from e2e.standalone.model_clients import POLICIES, Model, shown_by
from e2e.standalone.model_history import Version
from e2e.standalone.wire import Answer, Client
from swiftlet.errors import NotFound
from swiftlet.model import ContainerRow, ListingQuery, ObjectKey, ObjectRow
from swiftlet.names import HashPath, Path
from swiftlet.ring.codec import load
from swiftlet.sync.session.compare import IN_FLIGHT_S
from swiftlet.transport.http_client import NodeClient
from swiftlet.transport.http_devices import HttpDevices
from swiftlet.transport.http_listing import HttpListingTransport
from swiftlet.transport.native_calls import NativeSettings
from swiftlet.transport.native_client import NativeClient
from swiftlet.transport.native_objects import NativeObjectTransport
from swiftlet.transport.signing import ClusterKey

REPLICATORS = ("replicator", "database-replicator")
ROUNDS = 2
WITHIN_S = 600.0
"""For what is waited for, on a machine with much else to do."""
ROUND_S = 900.0
"""For a round by hand."""
AUDITED = {
    "listing_audit_interval_s": 1,
    "listing_audit_rows_per_s": 0,
    "listing_audit_min_age_s": 1,
    "listing_audit_share": 1,
}
EVERYTHING = ListingQuery(limit=10_000)


def wait_until(condition: Callable[[], bool], what: str, within_s: float = WITHIN_S) -> None:
    """Wait for it for so long."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {within_s:g} s for {what}"
        time.sleep(0.1)


def report_of(cluster: Cluster, service: str, path: str = "/statusz") -> bytes:
    """Return a service's status report."""
    with urllib.request.urlopen(cluster.url(service) + path, timeout=30) as answer:
        return bytes(answer.read())


def pending(cluster: Cluster) -> int:
    """Updates that any device has pending for listings."""
    servers = [name for name in cluster.services if name.startswith("object-")]
    devices = [one for name in servers for one in json.loads(report_of(cluster, name))["devices"].values()]
    return sum(device["pending"] or 0 for device in devices)


def settle(cluster: Cluster) -> list[dict[str, int]]:
    """Deliver what is pending, then two rounds of each replicator by hand; what they did."""
    quiet_at = time.monotonic() + IN_FLIGHT_S + 0.5
    wait_until(lambda: time.monotonic() > quiet_at, "the last writes to count as settled")
    wait_until(lambda: pending(cluster) == 0, "pending updates to be delivered")
    did: list[dict[str, int]] = []
    with ThreadPoolExecutor(len(REPLICATORS)) as pool:
        for _ in range(ROUNDS):
            did += pool.map(lambda service: round_by_hand(cluster, service), REPLICATORS)
    return did


def round_by_hand(cluster: Cluster, service: str) -> dict[str, int]:
    """One round of a replicator's work in a process of its own, in which everything could be compared; what it did."""
    done = subprocess.run(
        [*cluster.services[service]["command"], "--once"],
        env={**environment(), **cluster.settings},
        capture_output=True,
        text=True,
        timeout=ROUND_S,
        check=False,
    )
    assert done.returncode == 0, f"{service}: {done.stdout}\n{done.stderr[-3000:]}"
    return dict(json.loads(done.stdout.splitlines()[-1]))


@dataclass(frozen=True, slots=True)
class Seen:
    """An object as the API shows it."""

    version: Version
    timestamp: str
    """Seconds since the epoch."""

    def listed(self, name: str) -> dict[str, object]:
        """What the listing has to say of it."""
        whole, _, fraction = self.timestamp.partition(".")
        second = datetime.fromtimestamp(int(whole), UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return {
            "name": name,
            "bytes": self.version.size,
            "hash": self.version.etag,
            "content_type": self.version.content_type,
            "last_modified": f"{second}.{fraction.ljust(6, '0')}",
        }


class Checks:
    """Checks one store at rest, whose objects a model knows."""

    def __init__(self, cluster: Cluster, client: Client, model: Model) -> None:
        """Nothing is under way."""
        self._cluster = cluster
        self._client = client
        self._model = model
        self._account = client.account
        etc = cluster.data / "etc"
        suffix = json.loads((etc / "secrets.json").read_text())["hash_path_suffix"]
        self._hash_path = HashPath(b"", suffix.encode())
        self._secret = (etc / "cluster.key").read_bytes().strip()
        self._key = ClusterKey(self._secret)
        self._rings = {path.stem: load(path) for path in (cluster.data / "rings").glob("*.ring")}

    def run(self) -> None:
        seen = self._objects()
        self._listings(seen)
        self._totals(seen)
        asyncio.run(self._replicas(seen))
        for path, history in self._model.histories.items():
            history.settle(seen[path].version if path in seen else None)
        self._audit()

    def _objects(self) -> dict[str, Seen]:
        """GET and HEAD of each object agree, and show what the model allows."""
        wrong: list[str] = []

        def look(path: str) -> tuple[str, Seen | None]:
            begun = time.monotonic()
            answers = [self._client.insist(method, path) for method in ("GET", "HEAD")]
            shown = [_seen(answer) for answer in answers]
            version = None if shown[0] is None else shown[0].version
            allowed = self._model.histories[path].allowed(begun, time.monotonic())
            if shown[0] != shown[1] or version not in allowed:
                known = self._model.histories[path].told()
                wrong.append(f"{path} is {shown}, allowed are {set(allowed)}:\n  {known}")
            if version is not None and md5(answers[0].body, usedforsecurity=False).hexdigest() != version.etag:
                wrong.append(f"the bytes of {path} do not have its ETag")
            return path, shown[0]

        with ThreadPoolExecutor(8) as pool:
            found = dict(pool.map(look, self._model.histories))
        assert wrong == [], f"{len(wrong)} objects are wrong: {wrong[:5]}"
        return {path: one for path, one in found.items() if one is not None}

    def _listings(self, seen: Mapping[str, Seen]) -> None:
        """Each listing is what the objects say, in the order of names."""
        for container in self._model.containers:
            answer = self._client.insist("GET", container, query="format=json")
            assert answer.status == 200, answer
            _must_equal(container, answer.json(), [one.listed(name) for name, one in _within(seen, container)])
            count, size = _totals_of(_within(seen, container))
            headers = self._client.insist("HEAD", container).headers
            told = headers["X-Container-Object-Count"], headers["X-Container-Bytes-Used"]
            assert told == (str(count), str(size)), container

    def _totals(self, seen: Mapping[str, Seen]) -> None:
        """The account's are those of its containers, in all and by policy, once they have been reported."""
        everything = [_totals_of(_within(seen, container)) for container in self._model.containers]
        wanted = {"X-Account-Container-Count": len(everything)} | _account_headers("X-Account", everything)
        for at, policy in enumerate(POLICIES):
            wanted |= _account_headers(f"X-Account-Storage-Policy-{policy}", everything[at :: len(POLICIES)])
        told: list[Mapping[str, str]] = []

        def is_right() -> bool:
            told.append(self._client.call("HEAD").headers)
            return all(told[-1].get(name) == str(value) for name, value in wanted.items())

        try:
            wait_until(is_right, "the account's totals")
        except AssertionError as error:
            raise AssertionError(f"the account tells {told[-1]}, its containers are {wanted}") from error

    async def _replicas(self, seen: Mapping[str, Seen]) -> None:
        """Every replica of every database, and every primary of every object, has exactly what the API shows."""
        listings = HttpListingTransport(NodeClient(key=self._key))
        native = NativeClient(NativeSettings(connect_timeout_s=WITHIN_S), [self._secret])
        objects = NativeObjectTransport(native, HttpDevices(NodeClient(key=self._key)))
        try:
            for at, container in enumerate(self._model.containers):
                rows = await self._replicated_rows(listings, container, seen)
                for path in (one for one in self._model.histories if one.startswith(f"{container}/")):
                    name = path.partition("/")[2]
                    await self._object_replicas(objects, at % len(POLICIES), container, name, rows.get(name))
            await self._account_replicas(listings, seen)
        finally:
            await objects.close()
            await listings.close()

    async def _replicated_rows(
        self, listings: HttpListingTransport, container: str, seen: Mapping[str, Seen]
    ) -> dict[str, ObjectRow]:
        ring = self._rings["container"]
        partition = ring.partition_of(self._hash_path(self._account, container))
        wanted = _within(seen, container)
        rows: Sequence[object] = []
        for device in ring.primaries(partition):
            place = device, partition, self._account, container
            info, rows = await listings.list_objects(*place, EVERYTHING)
            found = [row for row in rows if isinstance(row, ObjectRow)]
            shown = [(row.name, row.size, row.etag, row.content_type, row.modified.normal) for row in found]
            expected = [
                (name, one.version.size, one.version.etag, one.version.content_type, one.timestamp)
                for name, one in wanted
            ]
            _must_equal(f"{container} on {device.name}", shown, expected)
            assert (info.object_count, info.bytes_used) == _totals_of(wanted), f"{container} on {device.name}"
        return {row.name: row for row in rows if isinstance(row, ObjectRow)}

    async def _object_replicas(
        self, objects: NativeObjectTransport, policy: int, container: str, name: str, row: ObjectRow | None
    ) -> None:
        """All primaries have what the listing's row says, to the last timestamp."""
        ring = self._rings[f"object-{policy}"]
        digest = self._hash_path.of(Path(self._account, container, name))
        key = ObjectKey(policy, ring.partition_of(digest), digest)
        for device in ring.primaries(key.partition):
            try:
                found = ObjectRow.of(name, await objects.head(device, key))
            except NotFound:
                found = None
            assert found == row, f"{container}/{name} on {device.name}"

    async def _account_replicas(self, listings: HttpListingTransport, seen: Mapping[str, Seen]) -> None:
        """Each lists all containers with their totals: reports go to one of them each, so this may take a round."""
        ring = self._rings["account"]
        partition = ring.partition_of(self._hash_path(self._account))
        wanted = [(container, *_totals_of(_within(seen, container))) for container in self._model.containers]
        for device in ring.primaries(partition):
            deadline = time.monotonic() + WITHIN_S
            while True:
                _, rows = await listings.list_containers(device, partition, self._account, EVERYTHING)
                found = [row for row in rows if isinstance(row, ContainerRow)]
                told = [(row.name, row.object_count, row.bytes_used) for row in found]
                if told == wanted:
                    break
                assert time.monotonic() < deadline, f"{device.name} tells {told}, not {wanted}"
                await asyncio.sleep(0.1)

    def _audit(self) -> None:
        """A whole pass from both sides finds nothing that is wrong."""
        files = [self._cluster.settings_file(service) for service in REPLICATORS]
        before = [file.read_text() for file in files]
        self._cluster.kill(*REPLICATORS)
        for service in REPLICATORS:
            self._cluster.set(service, replicator=AUDITED)
        self._cluster.start(*REPLICATORS)
        for service in REPLICATORS:
            self._audited(service)
        self._cluster.kill(*REPLICATORS)
        for file, text in zip(files, before, strict=True):
            file.write_text(text)
        self._cluster.start(*REPLICATORS)

    def _audited(self, service: str) -> None:
        def last_pass() -> object:
            return json.loads(report_of(self._cluster, service))["listingAudit"]["lastPass"]

        wait_until(lambda: last_pass() is not None, f"a pass of the audit of {service}")
        metrics: dict[str, float] = {}
        for family in text_string_to_metric_families(report_of(self._cluster, service, "/metrics").decode()):
            for sample in family.samples:
                if sample.name.startswith("swiftlet_listing_audit_"):
                    metrics[sample.name] = metrics.get(sample.name, 0) + sample.value
        log = [
            line
            for line in self._cluster.log(service).splitlines()
            if "the audit found a listing that does not match the objects" in line
        ]
        looked_at = metrics["swiftlet_listing_audit_rows_total"]
        wrong = metrics.get("swiftlet_listing_audit_wrong_total", 0)
        undecided = metrics["swiftlet_listing_audit_undecided_total"]
        assert looked_at > 0, metrics
        assert (wrong, undecided) == (0, 0), f"{metrics}\n" + "\n".join(log)
        assert log == []


def _seen(answer: Answer) -> Seen | None:
    assert answer.status in (200, 404), answer
    return Seen(shown_by(answer), answer.headers["X-Timestamp"]) if answer.status == 200 else None


def _within(seen: Mapping[str, Seen], container: str) -> list[tuple[str, Seen]]:
    """A container's objects in the order of their names' UTF-8."""
    below = f"{container}/"
    found = [(path.removeprefix(below), one) for path, one in seen.items() if path.startswith(below)]
    return sorted(found, key=lambda entry: entry[0].encode())


def _totals_of(objects: Sequence[tuple[str, Seen]]) -> tuple[int, int]:
    return len(objects), sum(one.version.size for _, one in objects)


def _account_headers(prefix: str, totals: Sequence[tuple[int, int]]) -> dict[str, int]:
    return {
        f"{prefix}-Object-Count": sum(count for count, _ in totals),
        f"{prefix}-Bytes-Used": sum(size for _, size in totals),
    }


def _must_equal(what: str, found: Sequence[object], wanted: Sequence[object]) -> None:
    """Two lists, of which only what differs is told."""
    only_listed = [entry for entry in found if entry not in wanted]
    not_listed = [entry for entry in wanted if entry not in found]
    assert (only_listed, not_listed) == ([], []), f"{what}: it lists {only_listed}, but there is {not_listed}"
    assert list(found) == list(wanted), f"{what} is out of order"
