"""Storing and deleting objects, with all that it involves: quotas, versions, links, manifests, expiry.

In here: what happens between a request that was understood and a write that is durable. Not in here: routes.
"""
