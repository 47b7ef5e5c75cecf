"""The container server: account and container databases over HTTP, and what is counted from them.

In here: routes, streams of rows, claims, reports and totals. Not in here: SQLite (`listing`), shards (`sharding`).
"""
