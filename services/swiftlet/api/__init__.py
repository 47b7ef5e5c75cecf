"""The Swift API over HTTP: one file per resource and feature.

In here: what requests mean, which headers and statuses answer them, what bad input is told. Not in here: disks,
rings, or which node holds what (that is `placement`); generic HTTP plumbing (that is `web`).
"""
