"""One round: which devices compare what with whom, in which order, and what standing they have afterwards.

The planner finds what there is to do for each own device, and gives it to the executor as one value
(`swiftlet.sync.planning.planned_round`). The executor holds the sessions. The state of the round, which does no I/O,
has their results, what is left to do, and what waits for nodes that are away.

Where the mode compares many partitions in one message, each peer is first asked for proofs about all partitions shared
with it. What is left is worked on in sessions of many partitions with one peer each. A partition is in one session at a
time, so that nothing is fetched twice: it may get everything from the first peer, and be found equal to the others.
Peers that were compared earlier may lack what came from a later one, so they are compared once more.

`swiftlet.sync.planning.task_queue` decides what comes next.

Fault model: a session may fail for any reason, after any part of its work. The partitions that it did not report are
tried again in sessions of an eighth of the size, down to single partitions, which then count as failed. So one
partition in trouble does not stop the others, and a node that is away fails often enough on the way to be left out.
What was left out because of a node is taken up when it is back.
"""
