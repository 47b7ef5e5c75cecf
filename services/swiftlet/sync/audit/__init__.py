"""Proves containers' listings against the objects that they list, and repairs what differs, in both directions.

This package has the decision about one row, the look at objects on their devices, the two walks, and their metrics. How
rows merge (`swiftlet.model`) and how replicas of a database compare (`swiftlet.sync.databases`) don't belong here. The
design is in `docs/design/2026-11-23-listing-audit.md`.
"""
