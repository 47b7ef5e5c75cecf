"""`kubectl swiftlet`: shows a person the state of a cluster, and makes the one change that it offers (`spec.drain`).

It reaches the cluster only by running `kubectl`, so that every way to log in works and nothing of the operator's client
is needed: just the standard library and the project's own reader of rings. What was read is put into one frozen
`Picture` (`kubectl`, `gather`); what follows from it is pure (`picture`, `devices`, `findings`, `render`). Decisions
that the operator makes from the same reports don't belong here.
"""
