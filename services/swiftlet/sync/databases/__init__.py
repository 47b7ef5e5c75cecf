"""Account and container databases in the rounds of the replicator: a database is what an object is elsewhere.

In here: a database as an entry of a session (`entries`), what to do about one that differs (`rules`), whether to do it
now (`patience`), bringing two replicas together row by row (`exchange`), and how container servers are asked
(`replica_kind`). Not in here: SQLite, HTTP. The decisions and what they
cost are in `docs/design/2026-11-22-database-rounds.md`.
"""
