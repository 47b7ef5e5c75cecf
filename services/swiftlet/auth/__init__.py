"""Authentication and authorization: the user of a request and the user's rights.

In here: users and their secrets, tokens, roles and the decision. Not in here: HTTP (the token endpoints are in
`api`), or where users come from in Kubernetes (the operator writes the users file).
"""
