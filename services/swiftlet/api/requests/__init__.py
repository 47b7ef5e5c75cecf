"""One file per resource and method: what a client's request does, from its headers to its response.

This package has handlers, which `api.app` binds to routes. Rules that two of them share don't belong here.
"""
