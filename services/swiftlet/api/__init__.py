"""The Swift API over HTTP: one file per resource and feature.

This package says what requests mean, which headers and statuses answer them, and how bad input is reported. Disks,
rings, and which node holds what don't belong here (see `placement`), nor does generic HTTP plumbing (see `web`).
"""
