"""Names of the ConfigMaps that rings and builders are kept in."""

from __future__ import annotations


def ring_map(cluster: str, ring: str, index: int) -> str:
    """The ConfigMap of a ring's chunk."""
    return f"{cluster}-ring-{ring}-{index}"


def builder_map(cluster: str, ring: str, index: int) -> str:
    """The ConfigMap of a piece of a ring's builder, and the Secret with its copy."""
    return f"{cluster}-builder-{ring}-{index}"
