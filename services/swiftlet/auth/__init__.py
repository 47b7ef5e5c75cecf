"""Authentication and authorization: the user of a request and the user's rights.

Users and their secrets, tokens, roles and the decision belong here. HTTP (the token endpoints are in `api`), and the
origin of users in Kubernetes (the operator writes the users file) don't.
"""
