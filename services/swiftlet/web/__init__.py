"""What every HTTP service of the cluster needs, and nothing that is particular to one of them.

In here: request ids, the answer to unexpected errors, access log, health, readiness, metrics, logging, serving
with a graceful end, several processes on one port. Not in here: routes, what domain errors mean over HTTP, or
settings (options come in as plain values).
"""
