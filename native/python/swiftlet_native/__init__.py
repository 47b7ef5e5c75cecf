"""What of Swiftlet moves bytes rather than decides; `__init__.pyi` beside this says what there is."""

from swiftlet_native._native import (
    Hasher,
    Store,
    StoreError,
    StoreReader,
    StoreWriter,
    TransportBuffer,
    TransportChunk,
    TransportNode,
    TransportPeer,
    TransportTicket,
    TransportUpload,
    __version__,
    md5,
    xxh3_64,
    xxh3_128,
)

__all__ = [
    "Hasher",
    "Store",
    "StoreError",
    "StoreReader",
    "StoreWriter",
    "TransportBuffer",
    "TransportChunk",
    "TransportNode",
    "TransportPeer",
    "TransportTicket",
    "TransportUpload",
    "__version__",
    "md5",
    "xxh3_64",
    "xxh3_128",
]
