"""The storage policies of a process: a file's are looked at every few seconds, together with the rings they need."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aiohttp import web
from prometheus_client import Counter

from swiftlet.errors import SettingsError
from swiftlet.main.reloading import Look, keep_current, look_at
from swiftlet.main.ring_names import object_ring
from swiftlet.main.rings import RingSet
from swiftlet.settings import ServiceSettings
from swiftlet.settings.policies import Policies, read_policies
from swiftlet.settings.sections import PolicySection

FAILURES = Counter("swiftlet_policies_load_failures_total", "Changed policies files that could not be used.")


def use_policies(app: web.Application, settings: ServiceSettings, rings: RingSet) -> Policies:
    """The policies of `app`; with a policies file, new ones come into force while it runs, once their ring is there."""
    policies = settings.load_policies()
    file = settings.cluster.policies_file
    if file is not None:
        announced = _Announced(file, policies, rings)
        keep_current(app, "policies file", announced.reload, FAILURES, settings.cluster.ring_check_interval_s)
    return policies


class _Announced:
    """What the file said last, some of which may have to wait for its ring."""

    def __init__(self, file: Path, policies: Policies, rings: RingSet) -> None:
        self._file = file
        self._policies = policies
        self._rings = rings
        self._seen: Look | None = None
        self._announced: Sequence[PolicySection] = ()

    def reload(self) -> bool:
        """Take over what the file says as far as that can be used; whether anything changed. SettingsError."""
        try:
            look = look_at([self._file])
        except OSError as error:
            raise SettingsError(f"can't read the policies file {self._file}: {error.strerror}") from error
        if look != self._seen:
            self._announced = read_policies(self._file)
            self._seen = look
        for policy in self._announced:
            self._rings.add(object_ring(policy.index))
        return self._policies.take(self._announced, lambda index: self._rings.has(object_ring(index)))
