"""Moves what differs: batches of copies, their form on the wire, their pace, and the outcome for each object.

Everything from "this version is newer" to "the other device has it" belongs here; finding differences does not.
"""
