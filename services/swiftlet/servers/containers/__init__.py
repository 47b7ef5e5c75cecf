"""The container server: account and container databases over HTTP, and what is counted from them.

Routes, streams of rows, claims, reports and totals belong here. SQLite (`listing`) and shards (`sharding`) don't.
"""
