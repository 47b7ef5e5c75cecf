"""The operator: makes a StorageCluster and the objects around it true, again and again, from whatever it finds.

One call does it all: `reconcile` reads everything into one frozen `world`, pure code decides (`checks`, `rings`,
`build`, put together by `plan`), `apply` writes what differs, `status` tells. Handlers only say which cluster to look
at. What does not belong here: anything that serves requests or touches data.
"""
