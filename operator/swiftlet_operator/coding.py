"""Finds what a policy's erasure coding lacks in the pools, and whether it is another one than objects were stored by.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from swiftlet.crd import Pool
from swiftlet.ring.model import Coding
from swiftlet_operator.build.site import Policy


def problems(policy: Policy, coding: Coding, holding: Sequence[Pool]) -> Iterator[tuple[str, str]]:
    """Yield a reason and a message for each thing that keeps these pools from carrying the policy's fragments.

    Devices have to be as many as fragments, and a pod must not have more of an object's fragments than may be lost.
    """
    devices = [pool.devices_per_pod for pool in holding for _ in range(pool.replicas)]
    said = f"policy {policy.name} with erasureCoding {coding}"
    if sum(devices) < coding.fragments:
        yield (
            "TooFewDevices",
            f"{said} keeps {coding.fragments} fragments of an object on as many devices, and its pools have "
            f"{sum(devices)}; add pods to a pool, or make another policy with less data or parity",
        )
    elif (most := _most_on_a_pod(devices, coding.fragments)) > coding.parity:
        pods = -(-coding.fragments // coding.parity)
        yield (
            "TooFewPods",
            f"{said} has {most} fragments of an object on a pod, and only {coding.parity} may be lost; "
            f"spread its devices over {pods} pods or more, or make another policy with more parity",
        )


def _most_on_a_pod(devices: Sequence[int], fragments: int) -> int:
    """Return how many fragments of an object the pod with most of them has, when they are spread as evenly as can be
    over pods with so many devices.
    """
    most = 1
    while sum(min(most, count) for count in devices) < fragments:
        most += 1
    return most


def changed(policy: Policy, before: str) -> str:
    """Return why objects that were stored with the coding `before`, as `described` says it, can't have the policy's;
    empty when it is the same.
    """
    now = described(policy.coding)
    if now == before:
        return ""
    return f"{policy.name} (index {policy.index}) has objects with {before}, and its StoragePolicy says {now}"


def described(coding: Coding | None) -> str:
    """Return a coding in words that differ for each."""
    return "copies" if coding is None else f"erasureCoding {coding} in cells of {coding.cell_bytes} bytes"
