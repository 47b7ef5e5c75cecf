"""A seeded simulator of a whole cluster over the real sessions, rings and merge rules.

It has simulated time and network (`network`), devices (`store`), nodes that drive sessions (`node`), clients
(`client`), faults (`faults`), invariants (`checker`), and worlds made from a seed (`world`, `run`). `python -m
swiftlet.testing.sim` runs seeds and replays one. One seed is one history: nothing here uses the real clock, the real
network, or randomness other than the world's own.
"""
