"""What is broken of a store on this machine for each alert, by hands of `bench.degrade` and some of its own."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from prometheus_client.parser import text_string_to_metric_families

from bench.degrade.modes import DEVICE, MODES, OBJECT, Scene
from e2e.standalone.rows import bring_rows
from e2e.standalone.test_tls import TlsProxy
from e2e.standalone.wire import Client
from swiftlet.main.tests.certificates import make_short_pair
from swiftlet.model import ObjectRow
from swiftlet.timestamp import Timestamp

NODE = ("object-2", "container-2")
"""Another one than the first, which the replicator takes for its own."""
QUORUM = ("object-1", "object-2", "object-3")
"""So many object servers that no object has two replicas at hand."""
CONTAINERS = ("container-1", "container-2", "container-3")
OTHER_DEVICE = "d4"
FAILING = "object-3"
"""Its disk takes nothing any more."""
FILLING, FULL = 0.15, 0.05
"""The shares of a device of which less is free where the alerts of these names are for it."""
SPLIT_ABOVE_ROWS = 5_000
"""More than the load writes into a container."""
SPLIT_ROWS = 40_000
"""So many that moving them takes longer than it takes to see it begin."""
SPLIT_ATTEMPTS = 5
SPLIT_ROUNDS, SPLIT_ROUND_S = 3, 5.0
BEGINS_WITHIN_S = 60.0
_DAMAGE_FROM = 1 << 12
_GARBAGE = bytes(range(256)) * 16


@dataclass
class Store(Scene):
    """A store with one more proxy, which speaks HTTPS."""

    https: TlsProxy | None = None
    there: subprocess.Popen[bytes] | None = None
    """The replicator of another region, of a store that has one."""


Act = Callable[[Store], None]


@dataclass(frozen=True)
class AlertMode:
    """A way to break something, the alerts that are for it, and the minutes that pass until they fire and end."""

    name: str
    alerts: Sequence[str]
    breaks: Act
    mends: Act
    lasts: int
    ends_after: int
    minute_s: float = 0.6
    """The seconds of this machine that are told as a minute; less where hours have to pass."""
    shows: Callable[[Store], bool] = lambda _: True
    """Whether the store has noticed; the minutes that pass until the alerts fire begin then."""
    is_over: Callable[[Store], bool] = lambda _: True
    """Whether the store is whole again; the minutes that pass until the alerts end begin then."""


def client_of(scene: Scene) -> Client:
    """A client of the store's user."""
    return Client(scene.cluster.endpoint, scene.cluster.user, scene.cluster.key)


def both(*acts: Act) -> Act:
    """Return an act that does several, one after the other."""

    def act(scene: Store) -> None:
        for one in acts:
            one(scene)

    return act


def freezes(*services: str) -> Act:
    """Return an act after which services neither answer nor refuse."""
    return lambda scene: _signals(scene, services, signal.SIGSTOP)


def goes_on(*services: str) -> Act:
    """Return an act that lets frozen services go on."""
    return lambda scene: _signals(scene, services, signal.SIGCONT)


def _signals(scene: Scene, services: Sequence[str], number: int) -> None:
    pids = scene.cluster.pids
    for service in services:
        os.kill(pids[service], number)


def _has_objects_that_expire(scene: Scene) -> None:
    client = client_of(scene)
    assert client.call("PUT", "expiring").status == 201
    for number in range(3):
        put = client.call("PUT", f"expiring/{number}", {"X-Delete-After": "2"}, b"soon gone")
        assert put.status == 201


def _lists_what_is_not_there(scene: Scene) -> None:
    """A row of days ago, without its object, in all replicas of a listing."""
    client = client_of(scene)
    assert client.call("PUT", "wrong").status == 201
    row = ObjectRow("ghost", Timestamp.at(time.time() - 2 * 86_400), 3, "e" * 32, "text/plain", False)
    asyncio.run(bring_rows(scene.cluster, client.account, "wrong", [row]))


def _stops_a_split(scene: Scene) -> None:
    """End two container servers as soon as the third moves rows to a new shard.

    It may have moved all of its own rows by then, so that nothing of the split stands: then another container is split.
    """
    client = client_of(scene)
    for container in (f"large-{number}" for number in range(SPLIT_ATTEMPTS)):
        assert client.call("PUT", container).status == 201
        now = Timestamp.at(time.time())
        rows = [ObjectRow(f"{number:06}", now, 3, "e" * 32, "text/plain", False) for number in range(SPLIT_ROWS)]
        asyncio.run(bring_rows(scene.cluster, client.account, container, rows))
        deadline = time.monotonic() + BEGINS_WITHIN_S
        while not (splitting := [one for one in CONTAINERS if _splits(scene, one)]):
            assert time.monotonic() < deadline, "no split began"
            time.sleep(0.01)
        scene.cluster.kill(*(one for one in CONTAINERS if one != splitting[0]))
        if _stands(scene, splitting[0]):
            return
        _goes_on_with_the_split(scene)
    raise AssertionError(f"{SPLIT_ATTEMPTS} splits were over before they could be stopped")


def _stands(scene: Scene, service: str) -> bool:
    """Return whether a split is still under way after some rounds, which end it if all rows have been moved."""
    for _ in range(SPLIT_ROUNDS):
        time.sleep(SPLIT_ROUND_S)
        if not _splits(scene, service):
            return False
    return True


def _splits(scene: Scene, service: str) -> bool:
    with urllib.request.urlopen(scene.cluster.management_url(service) + "/statusz") as answer:
        return any(one["splitsUnderWay"] for one in json.load(answer)["shards"].values())


def _goes_on_with_the_split(scene: Scene) -> None:
    scene.cluster.start(*(one for one in CONTAINERS if one not in scene.cluster.pids))


def _shortens_the_certificate(scene: Store) -> None:
    """The proxy gets a certificate that is good for two hours, some eight days in minutes of the recording."""
    assert scene.https is not None
    pair = make_short_pair(scene.data.parent, "short", hours=2)
    scene.https.files.put(pair.cert, pair.key)


def _renews_the_certificate(scene: Store) -> None:
    assert scene.https is not None
    pair = scene.https.pairs[1]
    scene.https.files.put(pair.cert, pair.key)


def _refuses_writes(scene: Scene) -> None:
    """No file of the object server may have another byte, as on a disk that answers writes with errors."""
    psutil.Process(scene.cluster.pids[FAILING]).rlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def _comes_back_with_a_good_disk(scene: Scene) -> None:
    scene.cluster.kill(FAILING)
    scene.cluster.start(FAILING)


def ends(*services: str) -> Act:
    """Return an act that kills services of the store by their names."""
    return lambda scene: scene.cluster.kill(*services)


def starts(*services: str) -> Act:
    """Return an act that starts services again that were killed."""
    return lambda scene: scene.cluster.start(*services)


def nothing(_: Scene) -> None:
    """Leave it as it is."""


def _frees(scene: Scene) -> None:
    (scene.devices(DEVICE) / "ballast").unlink()


def _rings(scene: Scene) -> Path:
    return scene.data / "rings" / "object-0.ring"


def _damages_a_ring(scene: Scene) -> None:
    ring = _rings(scene)
    ring.with_name("kept").write_bytes(ring.read_bytes())
    ring.write_bytes(b"not a ring")


def _restores_a_ring(scene: Scene) -> None:
    ring = _rings(scene)
    ring.with_name("kept").replace(ring)


def _users(scene: Scene) -> Path:
    return scene.data / "etc" / "users.yaml"


def _damages_users(scene: Scene) -> None:
    users = _users(scene)
    users.with_name("kept").write_bytes(users.read_bytes())
    users.write_text("users: [")


def _restores_users(scene: Scene) -> None:
    users = _users(scene)
    users.with_name("kept").replace(users)


class Stall:
    """A service gets no processor for most of each second, as on a machine that has too little."""

    def __init__(self, service: str, of_s: float = 1.0, for_s: float = 0.7) -> None:
        self._service, self._of_s, self._for_s = service, of_s, for_s
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, scene: Scene) -> None:
        """From now on; it ends with the scene at the latest."""
        self._thread = threading.Thread(target=self._hold, args=(scene.cluster.pids[self._service],))
        self._thread.start()
        scene.undo.callback(self.end)

    def end(self, _: Scene | None = None) -> None:
        """It has all of its time again."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _hold(self, pid: int) -> None:
        while not self._over.wait(self._of_s - self._for_s):
            os.kill(pid, signal.SIGSTOP)
            self._over.wait(self._for_s)
            os.kill(pid, signal.SIGCONT)


def _damages_objects(scene: Scene) -> None:
    """Write over what a device has in the middle of its largest volume."""
    volumes = [one for one in scene.devices(OTHER_DEVICE).rglob("*") if one.is_file()]
    with max(volumes, key=lambda one: one.stat().st_blocks).open("r+b") as file:
        for place in range(0, 1 << 20, 1 << 14):
            file.seek(_DAMAGE_FROM + place)
            file.write(_GARBAGE)


def _metric(scene: Scene, device: str, metric: str) -> float:
    """The sum of a metric of the object server that has a device."""
    service = f"object-{device.removeprefix('d')}"
    with urllib.request.urlopen(scene.cluster.management_url(service) + "/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return sum(sample.value for family in families for sample in family.samples if sample.name == metric)


def _has_found_damage(scene: Scene) -> bool:
    return _metric(scene, OTHER_DEVICE, "swiftlet_object_quarantined_total") > 0


def _fills(share_free: float) -> Act:
    """Take room on the small disk until no more than this share of it is free, which the load may have done before."""

    def act(scene: Scene) -> None:
        place = scene.devices(DEVICE)
        have = shutil.disk_usage(place)
        with (place / "ballast").open("ab") as file:
            size, more = file.tell(), int(have.free - share_free * have.total)
            if more > 0:
                os.posix_fallocate(file.fileno(), size, more)

    return act


def _tells_that_free_are(least: float, most: float) -> Callable[[Scene], bool]:
    """Return whether an object server's metrics say that such a share of the small disk is free.

    It looks at its disk every few seconds, each of which is more than a minute of the recording.
    """

    def is_so(scene: Scene) -> bool:
        free = _metric(scene, DEVICE, "swiftlet_object_device_free_bytes")
        return least <= free / _metric(scene, DEVICE, "swiftlet_object_device_total_bytes") < most

    return is_so


_STALL = Stall("metadata")
ALERT_MODES = (
    AlertMode("damaged users", ("SwiftletFileNotUsable",), _damages_users, _restores_users, 4, 0),
    AlertMode(
        "damaged objects", ("SwiftletDataQuarantined",), _damages_objects, nothing, 12, 0, shows=_has_found_damage
    ),
    AlertMode("a listing without its object", ("SwiftletListingsWrong",), _lists_what_is_not_there, nothing, 20, 0),
    AlertMode(
        "node",
        ("SwiftletTargetDown", "SwiftletNodeLeftOut"),
        ends(*NODE),
        starts(*NODE),
        32,
        12,
    ),
    AlertMode("quorum", ("SwiftletServerErrors",), ends(*QUORUM), starts(*QUORUM), 16, 14),
    AlertMode(
        "quorum for hours",
        ("SwiftletServerErrors", "SwiftletExpiryLags"),
        both(_has_objects_that_expire, ends(*QUORUM)),
        starts(*QUORUM),
        440,
        40,
        minute_s=0.05,
    ),
    AlertMode(
        "certificate",
        ("SwiftletCertificateExpires",),
        _shortens_the_certificate,
        _renews_the_certificate,
        70,
        4,
    ),
    AlertMode(
        "failing disk",
        ("SwiftletDeviceDown", "SwiftletReplicationFails"),
        _refuses_writes,
        _comes_back_with_a_good_disk,
        60,
        30,
    ),
    AlertMode(
        "a replicator whose object server hangs",
        ("SwiftletReplicationStands",),
        both(freezes(OBJECT), ends("replicator"), starts("replicator")),
        goes_on(OBJECT),
        95,
        16,
        minute_s=0.05,
    ),
    AlertMode("split", ("SwiftletSplitStands",), _stops_a_split, _goes_on_with_the_split, 90, 30),
    AlertMode("listings", ("SwiftletPendingUpdatesOld",), ends(*CONTAINERS), starts(*CONTAINERS), 22, 16),
    AlertMode("redis", ("SwiftletRedisAway",), MODES["redis"].breaks, MODES["redis"].mends, 25, 12),
    AlertMode("stalls", ("SwiftletSlowEventLoop",), _STALL.begin, _STALL.end, 24, 8),
    AlertMode("damaged ring", ("SwiftletRingNotUsable",), _damages_a_ring, _restores_a_ring, 22, 6),
    AlertMode(
        "filling disk",
        ("SwiftletDeviceFilling",),
        _fills(0.08),
        _frees,
        34,
        6,
        shows=_tells_that_free_are(0.0, FILLING),
        is_over=_tells_that_free_are(FILLING, 1.0),
    ),
    AlertMode(
        "full disk",
        ("SwiftletDeviceFilling", "SwiftletDeviceFull"),
        _fills(0.02),
        _frees,
        34,
        6,
        shows=_tells_that_free_are(0.0, FULL),
        is_over=_tells_that_free_are(FILLING, 1.0),
    ),
)
