"""One round: who is compared with whom about what, in which order, and what the device's standing is by it.

The planner finds what there is to do for each own device, and hands it over as one value
(`swiftlet.sync.planning.planned_round`). The executor holds the sessions; what they have shown, what is left to do and
what waits for nodes that are away is the state of the round, which does no I/O.

Where the mode compares many partitions in one message, each peer is first asked for proofs about all partitions shared
with it. What is left is worked on in sessions of many partitions with one peer each. A partition is in one session at
a time, so that nothing is fetched twice: with the first peer it may get everything, and be found equal to the others.
What came from one peer is new to the others that were compared before: those are compared once more.

What comes next is said by `swiftlet.sync.planning.task_queue`.

Fault model: a session may fail for any reason, with anything done or not done. What it has not told of is tried again
in sessions of an eighth of the size, down to single partitions, which then count as failed: one partition that is in
trouble keeps no others back, and a node that is away has failed often enough on the way to be left out. What was left
out because of a node is taken up when it is back.
"""
