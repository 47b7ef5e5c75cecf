"""The storage policies of a process: their file is checked every few seconds, together with the rings they need.

When the file no longer has a policy that it had as deprecated, its ring is forgotten: the policy was retired, because
nothing used it. A policy that disappears without having been deprecated was removed by mistake, and its ring stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def use_policies(
    app: web.Application, settings: ServiceSettings, rings: RingSet, then: Callable[[], None] | None = None
) -> Policies:
    """Return the policies of `app`; with a policies file, new ones come into force while it runs, once their ring is
    there.

    `then` is called in the event loop after each change.
    """
    policies = settings.load_policies()
    file = settings.cluster.policies_file
    if file is not None:
        announced = _Announced(file, policies, rings)
        keep_current(app, "policies file", announced.reload, FAILURES, settings.cluster.ring_check_interval_s, then)
    return policies


def use_policy_list(app: web.Application, settings: ServiceSettings) -> Policies:
    """Return the policies of an `app` that needs none of their rings."""
    policies = settings.load_policies()
    file = settings.cluster.policies_file
    if file is not None:
        seen: list[Look] = []

        def reload() -> bool:
            look = _look(file)
            if seen == [look]:
                return False
            announced = read_policies(file)
            seen[:] = [look]
            return policies.take(announced, lambda _index: True)

        keep_current(app, "policies file", reload, FAILURES, settings.cluster.ring_check_interval_s)
    return policies


def _look(file: Path) -> Look:
    try:
        return look_at([file])
    except OSError as error:
        raise SettingsError(f"can't read the policies file {file}: {error.strerror}") from error


class _Announced:
    """The last content of the file; some of its policies may have to wait for their rings."""

    def __init__(self, file: Path, policies: Policies, rings: RingSet) -> None:
        self._file = file
        self._policies = policies
        self._rings = rings
        self._seen: Look | None = None
        self._announced: Sequence[PolicySection] = ()

    def reload(self) -> bool:
        """Take over what the file has, as far as it can be used; return whether anything changed. Raises
        SettingsError.
        """
        look = _look(self._file)
        if look != self._seen:
            self._announced = read_policies(self._file)
            self._seen = look
        for policy in self._announced:
            self._rings.add(object_ring(policy.index))
        named = {policy.index for policy in self._announced}
        retired = [policy.index for policy in self._policies if policy.deprecated and policy.index not in named]
        changed = self._policies.take(self._announced, lambda index: self._rings.has(object_ring(index)))
        for index in retired:
            if self._policies.at(index) is None:
                self._rings.forget(object_ring(index))
        return changed
