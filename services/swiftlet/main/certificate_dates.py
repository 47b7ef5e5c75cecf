"""Reads until when certificates in PEM are valid. Pure. The TLS library tells that only of certificates that it trusts.

Fault model: the TLS library has accepted the text, so it holds certificates. What can't be read here all the same
raises a ValueError, never another exception.
"""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_FORMATS = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}
_MAX_LENGTH_BYTES = 4
"""The largest number of bytes that give the length of an element; a certificate is far shorter than 4 GiB."""


def expires_at(text: str) -> float:
    """Return the time in seconds since the epoch at which the first certificate of a chain expires. Raises
    ValueError.
    """
    found = _PEM.findall(text)
    if not found:
        raise ValueError("the file holds no certificate in PEM format")
    return min(_not_after(ssl.PEM_cert_to_DER_cert(one)) for one in found)


def _not_after(der: bytes) -> float:
    """Return the end of `tbsCertificate.validity` (RFC 5280, section 4.1)."""
    tag, certificate, _ = _element(der)
    tag, fields, _ = _element(_expected(tag, _SEQUENCE, certificate))
    fields = _expected(tag, _SEQUENCE, fields)
    tag, _, after_version = _element(fields)
    rest = after_version if tag == _VERSION else fields
    for _ in ("serial number", "signature algorithm", "issuer"):
        _, _, rest = _element(rest)
    tag, validity, _ = _element(rest)
    _, _, end = _element(_expected(tag, _SEQUENCE, validity))
    tag, moment, _ = _element(end)
    if tag not in _FORMATS:
        raise ValueError(f"a date of the certificate has the unknown type {tag:#x}")
    return datetime.strptime(moment.decode("ascii"), _FORMATS[tag]).replace(tzinfo=UTC).timestamp()


def _expected(tag: int, wanted: int, content: bytes) -> bytes:
    if tag != wanted:
        raise ValueError(f"the certificate has an element of type {tag:#x} where type {wanted:#x} is expected")
    return content


def _element(data: bytes) -> tuple[int, bytes, bytes]:
    """Return type and content of the first element, and what follows it."""
    if len(data) < 2:
        raise ValueError("the certificate is truncated")
    tag, length, start = data[0], data[1], 2
    if length & 0x80:
        start += length & 0x7F
        if not 2 < start <= 2 + _MAX_LENGTH_BYTES:
            raise ValueError("an element of the certificate has an invalid length")
        length = int.from_bytes(data[2:start], "big")
    if len(data) < start + length:
        raise ValueError("the certificate is truncated")
    return tag, data[start : start + length], data[start + length :]
