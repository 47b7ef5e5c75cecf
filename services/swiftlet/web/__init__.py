"""What every HTTP service of the cluster needs, and nothing that is particular to one of them.

Request ids, the answer to unexpected errors, access log, health, readiness, metrics, logging, serving with a graceful
end, and several processes on one port belong here. Routes, the HTTP status of domain errors, and settings (options are
passed as plain values) don't.
"""
