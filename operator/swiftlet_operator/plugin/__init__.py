"""`kubectl swiftlet`: what a person asks of a cluster, and the one thing that they change by it (`spec.drain`).

It talks to the cluster by running `kubectl` alone, so that every way to log in works and nothing of the operator's
client is needed: the standard library, and the project's own reader of rings. What is seen is put into one frozen
`Picture` (`kubectl`, `gather`); what follows from it is pure (`picture`, `devices`, `findings`, `render`). Not in here:
decisions that the operator makes from the same reports.
"""
