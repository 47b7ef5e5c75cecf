"""Failed Neighbor Handling (source 1): who is out of reach, who says so, and who is back.

In here: one observer's exceptions (`table`), what counts of what others say (`opinions`), the two together with probes
(`neighbours`, which rounds ask), and how observers hear of each other (`redis_table`, with `redis_wire` for what is
written there). Not in here: rounds. `docs/design/2026-11-21-failures.md` has the cases thought through.

A *node* is an object server, `host:port`; an *observer* is a replicator, named by the node that it works for.
"""
