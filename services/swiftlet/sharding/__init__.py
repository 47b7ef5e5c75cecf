"""Shards of containers: reading and writing through split points, splitting, moving rows to shards.

What a container server does with a container that is split belongs here. The tables (`listing.shards`) and the routes
(`servers.containers`) don't.
"""
