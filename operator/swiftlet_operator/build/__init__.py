"""Manifests of a cluster's children, pure: one file per kind of child, from a `Site` and nothing else.

`everything` has their order, and the ServiceAccount. Names, labels, pods, volumes and ports belong here. The live
objects, and whether a manifest is applied now, later or not at all (`swiftlet_operator.plan`), don't.
"""

from swiftlet_operator.build.everything import build
from swiftlet_operator.build.site import Group, Policy, Site

__all__ = ["Group", "Policy", "Site", "build"]
