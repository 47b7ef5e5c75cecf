"""Whether the proxies accept the logins of the cluster's StorageUsers.

Each proxy reports the digest of the users file that its processes use. A file has the lines of all users, and changes
with any of them. So when all proxies have accepted a user, its status records a digest of the user's line, which holds
for as long as the line stays the same.

Fault model: proxies are away or have just started, kubelets are late with the Secret, a worker of a proxy can't read
the file. A ready proxy that reports nothing counts as late; nothing is known when no proxy reports anything.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import yaml

from swiftlet.crd import Fact, Resource, StorageUserSpec
from swiftlet.documents import read_document
from swiftlet_operator.build.settings import USERS_FILE
from swiftlet_operator.build.site import PROXY
from swiftlet_operator.logins import NOT_SERVED, SILENT
from swiftlet_operator.manifests import SECRET, USER, Manifest, digest_of, name_of
from swiftlet_operator.plan.actions import StatusOf
from swiftlet_operator.plan.sync import is_ready
from swiftlet_operator.reports import Report
from swiftlet_operator.rings import named
from swiftlet_operator.world import World

SERVED = "served"
"""Field of a StorageUser's status: the digest of the line that all proxies accepted last."""
_VERSION = 8
"""How many hex digits of a file's digest proxies report."""


@dataclass(frozen=True, slots=True)
class Logins:
    """Digests of the lines of the users file, and the proxies that use another file or don't report one.

    `asked`: how many proxies are ready; `heard`: whether one of them reports anything.
    """

    lines: Mapping[tuple[str, str], str]
    late: tuple[str, ...]
    asked: int
    heard: bool

    @property
    def complete(self) -> bool:
        """Return whether all proxies use the file."""
        return self.heard and not self.late


def logins_of(world: World, users: Manifest | None) -> Logins:
    """Return which proxies use a users file, given as the Secret with it."""
    content = _file_in(users)
    version = hashlib.sha256(content).hexdigest()[:_VERSION]
    pods = [pod for pod in world.pods if _has_proxy(pod) and is_ready(pod)]
    reports = {name_of(pod): world.report(name_of(pod), PROXY) for pod in pods}
    late = tuple(sorted(pod for pod, report in reports.items() if not _uses(report, version)))
    return Logins(_lines(content), late, len(pods), any(report is not None for report in reports.values()))


def live_logins(world: World) -> Logins:
    """Return the same for the users file as it is now."""
    return logins_of(world, world.child(SECRET, f"{world.cluster.meta.name}-users"))


def _file_in(users: Manifest | None) -> bytes:
    try:
        return base64.b64decode(((users or {}).get("data") or {}).get(USERS_FILE, ""), validate=True)
    except binascii.Error:
        return b""


def _has_proxy(pod: Manifest) -> bool:
    return any(container["name"] == PROXY for container in pod["spec"].get("containers") or [])


def _uses(report: Report | None, version: str) -> bool:
    return report is not None and report.users == version and report.workers <= {version}


def _lines(content: bytes) -> dict[tuple[str, str], str]:
    try:
        entries = read_document(content) or []
        return {(str(one["account"]), str(one["user"])): digest_of(one) for one in entries}
    except (yaml.YAMLError, KeyError, TypeError):
        # Somebody changed the file by hand; it will be written anew.
        return {}


def with_login(world: World, user: Resource[StorageUserSpec], logins: Logins, told: StatusOf) -> StatusOf:
    """Return the status of a user: one that is part of the cluster is ready only when all proxies accept its login."""
    if not told.facts[0].is_true:
        return told
    fact, changed = _login(world, user, logins)
    return replace(told, facts=(fact,), fields={**told.fields, **changed})


def awaits_proxies(statuses: Iterable[StatusOf]) -> bool:
    """Return whether a user becomes ready as soon as the proxies say so, which no event announces."""
    return any(one.kind == USER and one.facts[0].reason == NOT_SERVED for one in statuses)


def _login(world: World, user: Resource[StorageUserSpec], logins: Logins) -> tuple[Fact, dict[str, str]]:
    line = logins.lines.get((user.spec.account, user.spec.user))
    status = (world.own.get((USER.kind, user.meta.name)) or {}).get("status") or {}
    before = status.get(SERVED) or ""
    if line is None:
        return Fact("Ready", "False", NOT_SERVED, "the users file does not have it yet"), _changed(before, "")
    if not logins.heard:
        which = f"none of the {logins.asked} proxies that are ready" if logins.asked else "no proxy is ready, so none"
        return Fact("Ready", "Unknown", SILENT, f"{which} says which users it knows"), _kept(before, line)
    if logins.complete or line == before:
        return Fact("Ready", "True", "Accepted", "all proxies accept its login"), _changed(before, line)
    message = f"{named(logins.late)} does not say yet that it takes the login; that takes a minute or two"
    return Fact("Ready", "False", NOT_SERVED, message), _changed(before, "")


def _kept(before: str, line: str) -> dict[str, str]:
    """Return the change of the recorded digest, which is cleared when it is of another line than this one."""
    return _changed(before, before if before == line else "")


def _changed(before: str, now: str) -> dict[str, str]:
    return {} if before == now else {SERVED: now}
