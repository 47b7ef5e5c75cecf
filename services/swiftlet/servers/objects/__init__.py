"""The object server: requests about objects and devices, and the listing rows that devices have to deliver.

Admission, thread pools, pending container updates and answers to replicators belong here. How objects are kept
(`store`) does not.
"""
