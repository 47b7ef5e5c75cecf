"""Names of what more than one room has to know: maps of rings and builders, the budget of pods with data."""

from __future__ import annotations


def ring_map(cluster: str, ring: str, index: int) -> str:
    """The ConfigMap of a ring's chunk."""
    return f"{cluster}-ring-{ring}-{index}"


def data_budget(cluster: str) -> str:
    """The PodDisruptionBudget of all pods with data."""
    return f"{cluster}-data"


def builder_map(cluster: str, ring: str, index: int) -> str:
    """The ConfigMap of a piece of a ring's builder, and the Secret with its copy."""
    return f"{cluster}-builder-{ring}-{index}"
