"""Failed Neighbor Handling (source 1): decides who is unreachable and who is back, from own exceptions and from
reports.

This package has one observer's exceptions (`table`), the reports of others and what they count for (`opinions`), both
together with probes (`neighbours`, which rounds ask), and the exchange between observers (`redis_table`, with
`redis_wire` for what is written there). Rounds don't belong here. `docs/design/2026-11-21-failures.md` discusses the
cases.

A *node* is an object server, `host:port`; an *observer* is a replicator, named by the node that it works for.
"""
