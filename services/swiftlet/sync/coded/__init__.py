"""Repairs objects with erasure coding: fragments that places lack, deletions, writes whose proxy is gone, spares.

`repairer` does rounds; `comparing` finds what two places show differently, `mending` does what follows from it, `fates`
is about versions that are not settled. Which versions count and what a device does is decided by native code
(`native/crates/fragments`), at the devices.
"""
