"""Reads objects: from one object, from its segments, through links, of an earlier version, as a web site.

This package finds what a GET or HEAD refers to, and sends it. What changes stored data doesn't belong here.
"""
