"""Listings in the simulator: containers' replicas, the rows of writes, and what both must lead to.

It has container devices (`store`) and the nodes that drive the real exchange between them (`node`), rows in transfer
from proxies and object devices (`rows`), invariants (`checker`), and the world's part of it all (`world`). Not
simulated: containers that are deleted or split, and the walks of the listing audit. Its verdicts are simulated: an
audit here looks at all devices in one moment.
"""
