"""HTTP requests and responses: headers, ranges, conditions, bodies, errors.

This package has what can be told from a request or a response alone. Who sends it, and what is stored, don't belong
here.
"""
