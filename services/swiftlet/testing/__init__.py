"""Code that only tests, the simulator and benchmarks use; neither the wheel nor the image contains it.

It has in-memory twins of devices and transports, the faults that are injected into them, the conformance suites that
every implementation of a boundary passes, and the simulator of whole clusters. Nothing outside of `tests` folders
imports it. Things that a setting can choose, and helpers for the tests of one package alone, don't belong here.
"""
