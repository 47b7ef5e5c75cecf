"""Keeping replicas equal.

In here: comparing what two devices hold, deciding what to send, and the rounds that do it. Not in here: how a
device stores or hashes anything (`store`), how bytes travel (`transport`), or what clients see.
"""
