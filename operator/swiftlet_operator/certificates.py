"""Checks whether a TLS Secret holds a certificate and its key, as a proxy does at its start; pure.

Fault model: Secrets may have content that is cut off, of two certificates, encrypted, or something else altogether. A
running proxy keeps its last good pair; a new one could not start with such a pair, so the cluster reports it before.
"""

from __future__ import annotations

import os
import ssl

_MAX_BYTES = 1024 * 1024
"""The largest size in bytes of a certificate; a Secret cannot hold more."""


def unusable(certificate: bytes, key: bytes) -> str:
    """Return why these two PEM texts can't be served with; "" when they can."""
    if len(certificate) + len(key) > _MAX_BYTES:
        return "they are larger than a Secret can be"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # The library reads only files; these two are in memory and have no name.
    descriptors = [os.memfd_create(name, os.MFD_CLOEXEC) for name in ("certificate", "key")]
    try:
        for descriptor, content in zip(descriptors, (certificate, key), strict=True):
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(content)
        cert_file, key_file = (f"/proc/self/fd/{descriptor}" for descriptor in descriptors)
        context.load_cert_chain(cert_file, key_file, password=_refuse_password)
    except _EncryptedError:
        return "the key is encrypted; give one without a password"
    except ssl.SSLError as error:
        return error.reason.lower().replace("_", " ") if error.reason else "no certificate and key in PEM"
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return ""


class _EncryptedError(Exception):
    """The key needs a password."""


def _refuse_password() -> str:
    # Without this the library would ask for a passphrase at the terminal.
    raise _EncryptedError
