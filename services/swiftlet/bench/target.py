"""Where a store is: an account's URL and a token become addresses and headers."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import quote, urlsplit

from swiftlet.bench.direct.store import OpenStore
from swiftlet.bench.errors import BenchError

Api = Literal["swift", "s3", "files", "direct"]
"""The protocol that a store speaks: Swift's API, S3 with buckets in the path, HTTP with files and no listings, or
that of Swiftlet's devices.
"""
APIS: tuple[Api, ...] = get_args(Api)


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys that sign requests to S3, and their region."""

    access: str
    secret: str = field(repr=False)
    region: str = "us-east-1"


@dataclass(frozen=True, slots=True)
class Target:
    """An account of a store; for S3 and files, the path that buckets and folders are below."""

    storage_url: str
    token: str = field(repr=False)
    ca_file: Path | None = None
    """Certificate authorities in PEM, in place of the system's."""
    api: Api = "swift"
    keys: Keys | None = None
    """For S3; None: requests are not signed."""
    opens: OpenStore | None = None
    """For direct access: what the generator's processes speak to the store by."""


@dataclass(frozen=True, slots=True)
class Place:
    """The same as the generator takes it."""

    addresses: list[tuple[str, int]]
    host: str
    path: str
    server_name: str
    authorities: bytes | None


def resolve(target: Target) -> Place:
    """Look up the addresses of a target; BenchError when its URL or its name can't be used."""
    parts = urlsplit(target.storage_url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise BenchError(f"{target.storage_url} is no URL of a store, such as http://127.0.0.1:8080/v1/AUTH_test")
    is_secure = parts.scheme == "https"
    try:
        port = parts.port or (443 if is_secure else 80)
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        raise BenchError(f"{parts.hostname} of {target.storage_url} has no address: {error}") from error
    addresses = list(dict.fromkeys((str(one[4][0]), port) for one in found))
    path = quote(parts.path.rstrip("/"), safe="/%:@!$&'()*+,;=~")
    host = parts.netloc.rpartition("@")[2]
    return Place(addresses, host, path, parts.hostname, _authorities(target.ca_file) if is_secure else None)


def _authorities(file: Path | None) -> bytes:
    known = file or _system_authorities()
    try:
        return known.read_bytes()
    except OSError as error:
        raise BenchError(f"certificate authorities in {known} can't be read: {error.strerror or error}") from error


def _system_authorities() -> Path:
    paths = ssl.get_default_verify_paths()
    for found in (paths.cafile, "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"):
        if found is not None and Path(found).is_file():
            return Path(found)
    raise BenchError("the system has no file of certificate authorities; name one with --ca-file or OS_CACERT")
