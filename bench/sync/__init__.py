"""Rounds of the replicator: bytes, requests and time."""
