"""The direct way: the client itself moves objects to and from the devices, by grants of a metadata server.

With a ring and a grant in hand, a small PUT, a GET, HEAD or DELETE is one round trip to the devices and nothing else.
What it means to store or read an object with several replicas is `swiftlet.placement`, the same code as a proxy's;
here is what a client needs beyond that: `grants` and `rings` (what a metadata server says), `guest` (connections),
`plain` (which requests can go directly at all), `outage` (when to stop trying), `parts` (what belongs together in one
event loop), and `way`.

Everything that can't go directly goes over HTTP. Needs the package `swiftlet-native`.
"""
