"""Several generators as one: a coordinator lets workers on other machines begin each step together and merges results.

`frames` has what is on the wire, without sockets; `merging` makes one step of several; `channel` has the sockets;
`coordinator` and `worker` are the two sides.
"""
