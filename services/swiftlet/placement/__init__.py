"""Which devices to ask, in which order, and how many answers make the truth.

In here: pure read and write plans, quorums, the memory of which nodes fail, and the fan-out that runs a plan
over a transport. Not in here: HTTP, what a device does with a request, or where rings come from.
"""
