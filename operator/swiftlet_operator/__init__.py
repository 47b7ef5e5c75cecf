"""The operator: brings a StorageCluster and the objects around it into the specified state, repeatedly, from any state.

One call does it all: `reconcile` reads everything into one frozen `world`, pure code decides (`checks`, `rings`,
`build`, put together by `plan`), `apply` writes what differs, and `status` reports. Handlers only say which cluster to
look at. Anything that serves requests or touches data does not belong here.
"""
