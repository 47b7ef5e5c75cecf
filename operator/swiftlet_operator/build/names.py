"""Names that several packages need: of maps of rings, builders and statements, and of the budget of pods with data."""

from __future__ import annotations


def ring_map(cluster: str, ring: str, index: int) -> str:
    """Return the name of the ConfigMap of a ring's chunk."""
    return f"{cluster}-ring-{ring}-{index}"


def data_budget(cluster: str) -> str:
    """Return the name of the PodDisruptionBudget of all pods with data."""
    return f"{cluster}-data"


def statement_map(cluster: str) -> str:
    """Return the name of the ConfigMap with what a cluster tells the other members of its federation."""
    return f"{cluster}-federation"


def builder_map(cluster: str, ring: str, index: int) -> str:
    """Return the name of the ConfigMap of a piece of a ring's builder, and of the Secret with its copy."""
    return f"{cluster}-builder-{ring}-{index}"
