"""Which devices to ask, in which order, and how many answers decide.

Pure read and write plans, quorums, the memory of which nodes fail, and the fan-out that runs a plan over a transport
belong here. HTTP, what a device does with a request, and where rings come from don't.
"""
