"""Reading objects: from one object, from its segments, through links, of an earlier version, as a web site.

In here: finding what a GET or HEAD means, and sending it. Not in here: anything that changes what is stored.
"""
