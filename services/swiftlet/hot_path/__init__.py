"""Reads that are answered without Python: what Python decides beforehand, and the way of connections to and fro.

`deciding` says who may read where for a moment; `withdrawing` which requests end that; `routes` where objects are;
`door` moves connections between the native front and aiohttp; `records` writes down what the front has answered.
`hot_path` joins them. Nothing here runs per hot request. See docs/design/2026-11-21-hot-path.md.
"""
