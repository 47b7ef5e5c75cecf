"""What is broken of a store on this machine for each alert, by hands of `bench.degrade` and some of its own."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.degrade.modes import DEVICE, MODES, Scene

Act = Callable[[Scene], None]
NODE = ("object-2", "container-2")
"""Another one than the first, which the replicator takes for its own."""
QUORUM = ("object-1", "object-2", "object-3")
"""So many object servers that no object has two replicas at hand."""
CONTAINERS = ("container-1", "container-2", "container-3")
OTHER_DEVICE = "d4"
_DAMAGE_FROM = 1 << 12
_GARBAGE = bytes(range(256)) * 16


@dataclass(frozen=True)
class AlertMode:
    """A way to break something, the alerts that are for it, and the minutes that pass until they fire and end."""

    name: str
    alerts: Sequence[str]
    breaks: Act
    mends: Act
    lasts: int
    ends_after: int


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


def _fills(share_free: float) -> Act:
    """Take room on the small disk until this share of it is free."""

    def act(scene: Scene) -> None:
        place = scene.devices(DEVICE)
        have = shutil.disk_usage(place)
        with (place / "ballast").open("ab") as file:
            size, more = file.tell(), int(have.free - share_free * have.total)
            os.posix_fallocate(file.fileno(), size, more)

    return act


_STALL = Stall("metadata")
ALERT_MODES = (
    AlertMode("damaged users", ("SwiftletFileNotUsable",), _damages_users, _restores_users, 4, 0),
    AlertMode("damaged objects", ("SwiftletDataQuarantined",), _damages_objects, nothing, 12, 0),
    AlertMode(
        "node",
        ("SwiftletTargetDown", "SwiftletNodeLeftOut"),
        ends(*NODE),
        starts(*NODE),
        32,
        12,
    ),
    AlertMode("quorum", ("SwiftletServerErrors",), ends(*QUORUM), starts(*QUORUM), 16, 14),
    AlertMode("listings", ("SwiftletPendingUpdatesOld",), ends(*CONTAINERS), starts(*CONTAINERS), 22, 16),
    AlertMode("redis", ("SwiftletRedisAway",), MODES["redis"].breaks, MODES["redis"].mends, 25, 12),
    AlertMode("stalls", ("SwiftletSlowEventLoop",), _STALL.begin, _STALL.end, 24, 8),
    AlertMode("damaged ring", ("SwiftletRingNotUsable",), _damages_a_ring, _restores_a_ring, 22, 6),
    AlertMode("filling disk", ("SwiftletDeviceFilling",), _fills(0.08), nothing, 36, 0),
    AlertMode("full disk", ("SwiftletDeviceFilling", "SwiftletDeviceFull"), _fills(0.02), _frees, 12, 6),
)
