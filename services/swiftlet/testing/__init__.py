"""What only tests, the simulator and benchmarks use: neither the wheel nor the image has it.

In here: in-memory twins of devices and transports, the faults that are injected into them, the conformance suites
that every implementation of a boundary passes, and the simulator of whole clusters. Nothing outside `tests` folders
imports it. Not in here: what a setting can choose, and helpers that serve the tests of one room alone.
"""
