"""Weak, overused and idle proxies, and what is in front of them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from swiftlet.advice.cluster import ClusterShape
from swiftlet.advice.pitfalls.subject import (
    NOTE,
    SMALL_STORE,
    TYPICAL,
    WARNING,
    Finding,
    Subject,
    counted,
    processors_of,
)

UNBALANCED = 4.0
"""How many times more one side can do than the other before that is worth a word."""
IDLE = 0.1
"""Share of use at the busiest time below which proxies are idle."""


def one_proxy(subject: Subject) -> Iterator[Finding]:
    """Check whether there are two proxies."""
    if subject.cluster.proxies == 1:
        reason = "there is one proxy: nobody is served while it restarts or its node is away"
        yield Finding(WARNING, "one-proxy", "spec.proxy.replicas", reason, "2 or more")


def weak_proxies(subject: Subject) -> Iterator[Finding]:
    """Check what a proxy may use of processors, and what it is sure of."""
    cluster, taken = subject.cluster, subject.demand
    workers, limit, asked = counted(cluster.workers, "worker"), cluster.proxy.cpu_limit, cluster.proxy.cpu
    if limit is not None and limit < cluster.workers:
        reason = (
            f"a proxy has {workers} and may use {limit:g} processors: all requests and bytes go through proxies, which "
            "then wait for their limit while everything behind them is idle"
        )
        change = f"{cluster.workers} or more, or no limit"
        yield Finding(WARNING, "weak-proxies", "spec.proxy.resources.limits.cpu", reason, change)
    where = "spec.proxy.resources.requests.cpu"
    if taken is not None:
        needed = min(subject.cpu(taken, "proxy") / max(1, cluster.proxies - 1), cluster.processors_of_proxy)
        if asked < needed:
            reason = (
                f"at the busiest time, with one of {cluster.proxies} away, a proxy needs {needed:.1f} processors, and "
                f"is sure of {asked:g}"
            )
            yield Finding(WARNING, "weak-proxies", where, reason, _cpu(needed))
    elif asked < cluster.workers:
        reason = f"a proxy has {workers} and is sure of {asked:g} processors: on a node that is busy it gets no more"
        yield Finding(subject.usual, "weak-proxies", where, reason, f"{cluster.workers}, one for each worker")


def proxies_for_load(subject: Subject) -> Iterator[Finding]:
    """Check too few and too many proxies for a load that is known."""
    cluster, taken, busy = subject.cluster, subject.demand, subject.rules.busy
    if taken is None:
        return
    needed, each = subject.cpu(taken, "proxy"), cluster.processors_of_proxy
    have = f"proxies need {needed:.1f} processors at the busiest time, and {cluster.proxies} of them can use "
    have += f"{cluster.processors:g}"
    wanted = math.ceil(needed / each / busy) + 1
    if needed > (cluster.proxies - 1) * each * busy:
        reason = f"{have}: with one away they are more than {busy:.0%} busy, and more storage behind them serves nobody"
        yield Finding(WARNING, "overused-proxies", _field(cluster), reason, _more(cluster, wanted))
    elif needed < cluster.processors * IDLE and cluster.proxy_pods >= 2 * max(2, wanted):
        yield Finding(NOTE, "underused-proxies", "spec.proxy.replicas", have, f"{max(2, wanted)}")


def proxies_for_storage(subject: Subject) -> Iterator[Finding]:
    """Check the proportion of proxies and storage when no load is known: by loads of all kinds."""
    cluster = subject.cluster
    if subject.load is not None or cluster.devices < SMALL_STORE or not cluster.proxies:
        return
    storage = sum(pool.pods * processors_of(pool) for pool in cluster.holding)
    # How many times the load both could do, the one divided by the other.
    proportions = []
    for load in TYPICAL.values():
        taken = subject.demand_of(load)
        proportions.append((cluster.processors / taken.cpu["proxy"]) / (storage / taken.cpu["object"]))
    have = (
        f"proxies can use {cluster.processors:g} processors and object servers {storage:g} (by limits and requests, or "
        "else one a device): with small and large objects, for uploads and downloads, "
    )
    if min(proportions) > UNBALANCED:
        reason = f"{have}proxies could do at least {min(proportions):.1f} times as much as the storage"
        fewer = max(2, math.ceil(cluster.proxies / min(proportions) * UNBALANCED))
        yield Finding(NOTE, "underused-proxies", _field(cluster), reason, f"{fewer}, or more storage")
    elif max(proportions) < 1 / UNBALANCED:
        reason = f"{have}the storage could do at least {1 / max(proportions):.1f} times as much as the proxies"
        more = math.ceil(cluster.proxies / max(proportions) / UNBALANCED)
        yield Finding(NOTE, "overused-proxies", _field(cluster), reason, _more(cluster, more))


def balancer(subject: Subject) -> Iterator[Finding]:
    """Check what is in front of the proxies."""
    cluster, taken, most = subject.cluster, subject.demand, subject.balancer_bytes_per_s
    where = "spec.proxy.service.type"
    moved = max(taken.in_bytes, taken.out_bytes) if taken is not None else 0.0
    if most is not None and moved > most * subject.rules.busy:
        reason = f"clients move {moved / 1e6:,.0f} MB/s at the busiest time, and the balancer {most / 1e6:,.0f} at most"
        change = "LoadBalancer with a stronger balancer, or with several names that clients choose from"
        yield Finding(WARNING, "overloaded-balancer", where, reason, change)
    if cluster.service_type == "NodePort" and cluster.proxies > 1:
        reason = (
            "clients of a NodePort know addresses of nodes: without a balancer of yours all of them enter by the node "
            "that they were told, whatever the number of proxies, and are lost with it"
        )
        yield Finding(WARNING, "overloaded-balancer", where, reason, "LoadBalancer")
    if cluster.ends_tls_at_ingress:
        reason = (
            "all bytes of all clients pass through the Ingress controller, which also ends their TLS: it is busy "
            "before anything behind it"
        )
        change = (
            "none, with service.type LoadBalancer and spec.tls: proxies end TLS; or watch the controller's processors"
        )
        yield Finding(NOTE, "overloaded-balancer", "spec.proxy.ingress", reason, change)


def _field(cluster: ClusterShape) -> str:
    return "spec.proxy.replicas" if cluster.proxy_pods else "spec.proxy.workers"


def _more(cluster: ClusterShape, proxies: int) -> str:
    if cluster.proxy_pods:
        return f"{proxies}, or more workers each"
    return f"{math.ceil(proxies * cluster.workers / cluster.proxies)}"


def _cpu(processors: float) -> str:
    return f"{math.ceil(processors * 10) * 100}m" if processors <= 0.9 else f"{math.ceil(processors)}"
