"""Account and container databases: which names exist, their totals, and pages of them in order.

This package has the SQLite databases of one device, their merge rules and the semantics of listings. HTTP, rings, other
devices, and how a listing looks to a client don't belong here. `docs/data-on-disk.md` specifies the format.
"""
