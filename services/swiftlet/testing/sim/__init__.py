"""A seeded simulator of a whole cluster over the real sessions, rings and merge rules.

In here: simulated time and network (`network`), devices (`store`), nodes that drive sessions (`node`), clients
(`client`), what befalls them (`faults`), what must hold (`checker`), and worlds made from a seed (`world`, `run`).
`python -m swiftlet.testing.sim` runs seeds and replays one. One seed is one history: nothing in here asks the real
clock, the real network, or chance other than the world's own.
"""
