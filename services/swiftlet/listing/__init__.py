"""Account and container databases: which names exist, their totals, and pages of them in order.

In here: the SQLite databases of one device, their merge rules and listing semantics. Not in here: HTTP, rings,
other devices, or how a listing looks to a client. `docs/data-on-disk.md` is the format's specification.
"""
