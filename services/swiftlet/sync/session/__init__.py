"""The comparison of one device with its neighbours, as pure state machines.

This package decides who is compared with whom (`topology`) and in which order (`queue`), specifies what both sides say
(`messages`), and finds what two sides differ in (`compare`, or in bytes `packed` and `answers`, for many partitions
`many_partitions`). It has three machines: the side that asks (`neighbour`), the side that answers (`responder`), and
the return of a handoff (`handoff`). Sockets, clocks, asyncio and disks don't belong here. A machine yields the effects
that it wants (`effects`), is given their results, and keeps no more than a few messages' worth at a time.
`docs/sync.md` describes the protocol.
"""
