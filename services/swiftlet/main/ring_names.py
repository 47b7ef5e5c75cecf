"""The names of a cluster's rings; their files are `<name>.ring`."""

ACCOUNT = "account"
CONTAINER = "container"


def object_ring(policy: int) -> str:
    """Return the name of a policy's ring."""
    return f"object-{policy}"
