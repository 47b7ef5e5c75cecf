"""Load that goes to the devices directly, by the direct client in processes of its own.

Scenarios, orders and results are those of the native generator (`swiftlet_native.Load`); this one is for what speaks no
HTTP. The client costs far more than the native generator, and results say how much.
"""
