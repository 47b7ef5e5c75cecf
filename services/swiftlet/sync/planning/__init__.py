"""Plans what a replicator compares and in which order, and records what has been proved.

This package has the partitions of a device, the plan of a round, its tasks, their queue, the ledger of results, the
progress of a round and the standing of devices. It does no I/O except that `proving` talks to the local servers.
"""
