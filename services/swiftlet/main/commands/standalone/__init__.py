"""A whole store on one machine: the same programs as in a cluster, as processes under one supervisor.

In here: `plan` (pure: what to run, with which settings, on which ports), `prepare` (directories, secrets, rings
and settings files), `supervise` (processes, readiness, restarts, the end), `command` (the order of it all, and what
a person reads).
"""
