"""One device's comparison with its neighbours, as pure state machines.

In here: who is compared with whom (`topology`), in which order (`queue`), what both sides say (`messages`), what two
sides differ in (`compare`, or in bytes `packed` and `answers`, for many partitions `many_partitions`), and the three
machines: the side that asks (`neighbour`), the side that answers (`responder`), and the return of a handoff
(`handoff`). Not in here: sockets, clocks, asyncio, disks. A machine yields what it wants (`effects`), is given what
came of it, and keeps no more than a few messages' worth at a time. `docs/sync.md` describes the protocol.
"""
