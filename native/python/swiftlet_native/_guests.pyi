"""The part of the treaty about guests, who reach devices by grants; `swiftlet_native` has all of its names."""

from typing_extensions import Buffer

def cluster_key_id(key: Buffer, /) -> bytes:
    """The 4 bytes by which a cluster key is known."""

def guest_session(key: Buffer, id: bytes, ends_s: int, /) -> tuple[bytes, bytes]:
    """A session for a guest, and its secret: `id` has 16 bytes, the end is in seconds since 1970."""

def read_guest_session(session: Buffer, /) -> tuple[bytes, bytes, int]:
    """The id of a session's cluster key, its own id, and its end. ValueError when it is none."""

def sign_grant(
    key: Buffer,
    session: bytes,
    times_ms: tuple[int, int],
    place: tuple[int, int],
    operations: int,
    rows: int,
    sizes: tuple[int, int, int],
    account: str,
    container: str,
    prefix: str | None,
    object: str | None,
    /,
) -> bytes:
    """A grant by this key for the session with this id. ValueError for what no grant can say.

    `times_ms`: issue and end since 1970; `place`: policy and part power; `operations`: bits (1 GET, 2 HEAD, 4 PUT, 8
    POST, 16 DELETE); `rows`: the container's replicas as bits; `sizes`: the largest object, how many objects may be
    stored, their bytes together; with neither prefix nor object it is for the whole container.
    """

def guest_header(grant: Buffer, name: Buffer, header: Buffer, /) -> bytes:
    """The header of a guest's request about the object of this name: a member's, with the grant and the name before it.

    ValueError when one is too long.
    """

def guest_answer(header: Buffer, /) -> tuple[int, int, bytes]:
    """What a guest's answer says: the ring's version at the server, its clock in milliseconds since 1970, and the
    header that a member would have been sent. ValueError when it is none.
    """
