"""`kubectl swiftlet advise`: the pitfalls of a live cluster, with the load that its services' metrics show."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from swiftlet.advice.cluster import ClusterShape, cluster_of
from swiftlet.advice.costs import UnitCosts, shipped
from swiftlet.advice.load import Load
from swiftlet.advice.observed import Reading, observed, parse
from swiftlet.advice.pitfalls.checks import pitfalls
from swiftlet.advice.pitfalls.subject import Finding, Subject
from swiftlet.advice.text import costs_line, finding_lines, load_lines
from swiftlet.errors import SwiftletError
from swiftlet_operator.plugin.devices import fullness
from swiftlet_operator.plugin.gather import AT_ONCE, look
from swiftlet_operator.plugin.kubectl import Kubectl, KubectlError
from swiftlet_operator.plugin.picture import Address, Object, Picture, addresses, name_of

WATCHED = ("proxy", "object")
"""Services whose metrics say what is asked of a store."""
PAGE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Advice:
    """What was found, and the load that it was found with; None when nothing was asked of the cluster."""

    cluster: ClusterShape
    load: Load | None
    findings: list[Finding]
    costs: UnitCosts
    failures: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """Return it for people."""
        count = len(self.findings)
        yield f"StorageCluster {self.cluster.name}: {count or 'no'} pitfall{'' if count == 1 else 's'}"
        if self.load is None:
            yield "asked    nothing in this time, so only proportions are judged: watch it at its busiest time"
        else:
            yield from load_lines(self.load)
        yield from finding_lines(self.findings)
        yield from (f"NOTE    {failure}" for failure in self.failures)
        yield costs_line(self.costs)


def find(
    kubectl: Kubectl,
    cluster: Object,
    seconds: float,
    times: float,
) -> Advice:
    """Return advice about a cluster, from two readings of metrics so many seconds apart. Raises KubectlError."""
    picture = look(kubectl, cluster)
    try:
        shape = cluster_of(cluster, picture.policies)
    except (KeyError, TypeError, ValueError, SwiftletError) as error:
        raise KubectlError(
            f"StorageCluster {name_of(cluster)} is not as this plugin knows it ({error!r}): the plugin and the "
            "installed definitions should be of one release"
        ) from error
    asked = [one for one in addresses(picture.pods) if one.service in WATCHED]
    failures = list(picture.failures)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        read = _reader(kubectl, picture.namespace, failures)
        before = list(pool.map(read, asked))
        began = time.monotonic()
        time.sleep(seconds)
        after = list(pool.map(read, asked))
        passed = max(time.monotonic() - began, 1e-3)
    pairs = [(then, now) for then, now in zip(before, after, strict=True) if then is not None and now is not None]
    load = _load(pairs, passed, stored(picture, shape), times)
    costs = shipped()
    found = pitfalls(Subject(shape, costs, load))
    return Advice(shape, load, found, costs, tuple(dict.fromkeys(failures)))


def _load(pairs: list[tuple[Reading, Reading]], seconds: float, stored_bytes: float, times: float) -> Load | None:
    try:
        load = observed(pairs, seconds, stored_bytes)
    except SwiftletError as error:
        raise KubectlError(str(error)) from error
    if not any(load.per_second.values()) or not load.sizes.mean:
        return None
    return replace(load, per_second={name: rate * times for name, rate in load.per_second.items()})


def stored(picture: Picture, shape: ClusterShape) -> float:
    """Return the bytes of all objects: what is in use on object servers' devices, divided by what a byte takes."""
    pools = {pod for pod, service in picture.reports if service == "object"}
    used = sum(
        one.capacity_bytes - one.free_bytes
        for one in fullness(picture).values()
        if one.device.partition("/")[0] in pools and not one.device.endswith("/db")
    )
    return max(0.0, used / shape.policy.redundancy.bytes_per_byte)


def _reader(kubectl: Kubectl, namespace: str, failures: list[str]) -> Callable[[Address], Reading | None]:
    def read(one: Address) -> Reading | None:
        try:
            return parse(kubectl.raw(one.path(namespace, "metrics"), PAGE_TIMEOUT_S))
        except KubectlError as error:
            failures.append(f"the metrics of {one.pod} ({one.service}) could not be read: {error}")
            return None

    return read
