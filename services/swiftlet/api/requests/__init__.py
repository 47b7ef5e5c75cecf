"""One file per resource and method: what a request of a client does, from its headers to its answer.

In here: handlers, which `api.app` binds to routes. Not in here: rules that two of them share.
"""
