"""Manifests of a cluster's children, pure: one file per kind of child, from a `Site` and nothing else. `everything`
has their order, and the ServiceAccount.

What belongs here: names, labels, pods, volumes, ports. What does not: the live objects, and whether a manifest is
applied now, later or not at all (`swiftlet_operator.plan`).
"""

from swiftlet_operator.build.everything import build
from swiftlet_operator.build.site import Group, Policy, Site

__all__ = ["Group", "Policy", "Site", "build"]
