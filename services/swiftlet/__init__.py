"""Swiftlet: an object store for Kubernetes that speaks the OpenStack Swift API.

The rooms and the direction of their arrows are drawn in docs/ARCHITECTURE.md and enforced by the import
contracts in pyproject.toml.
"""

__version__ = "0.1.0"
