"""Reads and small PUTs that the native front answers without Python: the decisions before, and moving connections.

`deciding` says who may read where for a moment; `withdrawing` which requests end that; `routes` where objects are.
`connections` moves connections between the native front and aiohttp. `row_batches` has rows listed for the objects that
the front has stored, many at a time. `lending` has room for them where quotas apply: `slices` of it, which `settling`
lets go of when rows count. `proxy_front` joins them, and logs what the front has answered. Nothing here runs
for a request that the front answers. See `docs/design/2026-11-21-front.md`.
"""
