"""Stores and deletes objects, with everything that this involves: quotas, versions, links, manifests, expiry.

This package has what happens between a parsed request and a durable write. Routes don't belong here.
"""
