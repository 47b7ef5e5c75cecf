"""Account and container databases in the rounds of the replicator, which treat a database as they treat an object.

This package has the entry that stands for a database in a session (`entries`), the rules for one that differs
(`transfer_rules`), the decision whether to exchange it now (`patience`), the exchange of two replicas row by row
(`exchange`), and the questions to container servers (`replica_kind`). SQLite and HTTP don't belong here. The decisions
and their costs are in `docs/design/2026-11-22-database-rounds.md`.
"""
