"""Requests and answers as HTTP has them: headers, ranges, conditions, bodies, errors.

In here: what can be told from a request or an answer alone. Not in here: who asks, and what is stored.
"""
