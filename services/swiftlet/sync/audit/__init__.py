"""Proves containers' listings against the objects that they list, and mends what differs, in both directions.

Belongs here: the decision about one row, looking at objects on their devices, the two walks, and their metrics.
Does not: how rows merge (`swiftlet.model`), how replicas of a database compare (`swiftlet.sync.databases`). The design
is in `docs/design/2026-11-23-listing-audit.md`.
"""
