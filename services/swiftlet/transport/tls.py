"""TLS between services: the contexts for HTTP, with certificates that follow from the cluster's keys.

`native/crates/tls` makes the certificates, for the native transport too; a process issues one to itself, in memory, for
as long as its keys stay the same. Nothing has to be mounted or renewed, and a key that was removed is trusted no more.
`docs/design/2026-11-24-encryption.md` gives the reasons.

Fault model: as there. Without a cluster key neither side gets further than the handshake.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence

from swiftlet_native import cluster_certificates

from swiftlet.transport.modes import Encryption

PEER_NAME = "peer.swiftlet.internal"
"""The name in all certificates of a cluster; the signature of each request names the server."""
_PROTOCOL = "http/1.1"
"""The protocol that both sides name in the handshake, so that nobody can redirect a connection to a port of the native
transport.
"""


class PeerTls:
    """The TLS contexts of a process for its peers; they follow the cluster's keys."""

    def __init__(self, mode: Encryption, keys: Sequence[bytes]) -> None:
        """`mode` is `cluster.encryption`, `keys` are the cluster's keys, the signing one first. Raises OSError."""
        self.mode: Encryption = mode
        self.use(keys)

    def use(self, keys: Sequence[bytes]) -> None:
        """Use these keys from now on; open connections stay."""
        authorities, certificate, key = cluster_certificates(list(keys))
        chain = (certificate + key).encode()
        self._client = _context(ssl.PROTOCOL_TLS_CLIENT, authorities, chain)
        self._server = _context(ssl.PROTOCOL_TLS_SERVER, authorities, chain)
        self._server.num_tickets = 0

    def client(self) -> ssl.SSLContext | None:
        """Return the context for connections to peers; None when they are not encrypted."""
        return None if self.mode == "none" else self._client

    def server(self) -> ssl.SSLContext:
        """Return the context for connections from peers that encrypt."""
        return self._server


def _context(protocol: int, authorities: Sequence[str], chain: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols([_PROTOCOL])
    context.load_verify_locations(cadata="".join(authorities))
    # Python's OpenSSL reads a certificate only from a file; this one is in memory, and no other process can open it.
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, chain)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return context
