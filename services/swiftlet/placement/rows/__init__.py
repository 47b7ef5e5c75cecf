"""Listing rows of writes on their way to container replicas, and the acknowledgements to devices once they arrived."""
