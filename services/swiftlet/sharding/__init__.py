"""Shards of containers: reading and writing through split points, splitting, moving rows, merging again.

In here: what a container server does with a container that is split. Not in here: the tables (`listing.shards`) and the
routes (`servers.containers`).
"""
