"""What is to be compared, in which order, and what has been proved: a replicator's books.

In here: partitions, the plan of a round, tasks, the queue, the ledger, progress and standing. Not in here: any I/O.
"""
