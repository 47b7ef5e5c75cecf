"""What the rings of a cluster are called; their files are `<name>.ring`."""

ACCOUNT = "account"
CONTAINER = "container"


def object_ring(policy: int) -> str:
    """The name of a policy's ring."""
    return f"object-{policy}"
