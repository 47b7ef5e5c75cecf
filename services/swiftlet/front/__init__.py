"""Reads and small PUTs that are answered without Python: what Python decides before, and connections to and fro.

`deciding` says who may read where for a moment; `withdrawing` which requests end that; `routes` where objects are;
`connections` moves them between the native front and aiohttp; `row_batches` has rows listed of what the front has
stored, many at a time. `proxy_front` joins them, and writes down what the front has answered. Nothing here runs for a
request that the front answers. See docs/design/2026-11-21-front.md.
"""
