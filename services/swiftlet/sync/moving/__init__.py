"""Moving what differs: batches of copies, their wire form, their pace, and what becomes of each.

In here: everything from "this version is newer" to "the other device has it". Not in here: finding differences.
"""
