"""The object server: requests about objects and devices, and the listing rows that devices owe.

In here: admission, thread pools, pending container updates, answers to replicators. Not in here: how objects are kept
(`store`).
"""
