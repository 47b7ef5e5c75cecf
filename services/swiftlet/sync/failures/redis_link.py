"""The connection to Redis: its address, its password and certificate, and what its errors mean.

Files are read anew for each connection, so a changed password or certificate is used without a restart.

Fault model: each file may be missing, damaged or of another server; Redis may refuse us with any words. Each of these
becomes a `Problem`, whose text is for people and holds no password.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import AuthenticationError, ResponseError

_MAX_PASSWORD_BYTES = 4096
"""The largest size in bytes of the file with the password."""
_MAX_CERTIFICATE_BYTES = 1024 * 1024
"""The largest size in bytes of a file with certificates."""
_MAX_MESSAGE = 300
"""The largest length of the message about a problem."""
_END = b"-----END CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """The address of Redis, its credentials, and the timeouts.

    `ca_file` has the authorities that a certificate may come from, None for the system's. `certificate_file` has the
    one certificate that Redis must present, whatever names are in it; then `ca_file` is ignored.
    """

    url: str
    password_file: Path | None = None
    connect_timeout_s: float = 1.0
    answer_timeout_s: float = 1.0
    heartbeat_interval_s: float = 5.0
    ca_file: Path | None = None
    certificate_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Why Redis did not take the last heartbeat: a word for programs, a sentence for people."""

    reason: str
    message: str


class UnreadableFileError(Exception):
    """A file that the connection needs can't be read."""


def make_client(options: RedisOptions) -> redis.asyncio.Redis:
    """Return a client that connects with its first command; ValueError for a URL that can't be used."""
    file = options.password_file
    client = redis.asyncio.Redis.from_url(
        options.url,
        socket_connect_timeout=options.connect_timeout_s,
        socket_timeout=options.answer_timeout_s,
        socket_keepalive=True,
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
        encoding_errors="replace",
        max_connections=4,
        credential_provider=None if file is None else _PasswordFile(file),
    )
    pool = client.connection_pool
    if pool.connection_class is redis.asyncio.SSLConnection:

        class Verified(_VerifiedConnection):
            trusted = options

        pool.connection_class = Verified
    return client


def problem_of(error: Exception) -> Problem:
    """Return the problem that a failed exchange indicates."""
    text = str(error) or repr(error)
    message = text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}..."
    chain = _causes(error)
    if any(isinstance(one, UnreadableFileError) for one in chain):
        return Problem("FileUnreadable", message)
    # A Redis in protected mode without a password answers DENIED, one that wants a password NOAUTH.
    if any(isinstance(one, AuthenticationError) for one in chain) or "NOAUTH" in text:
        return Problem("AuthenticationFailed", message)
    if any(isinstance(one, ssl.SSLError) for one in chain):
        return Problem("TLSFailed", message)
    if any(isinstance(one, ResponseError) for one in chain) or "DENIED" in text:
        return Problem("Refused", message)
    if isinstance(error, redis.exceptions.RedisError | OSError):
        return Problem("Unreachable", message)
    return Problem("AnswerUnusable", message)


def _causes(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in found:
        found.append(one)
        one = one.__cause__ or one.__context__
    return found


class _PasswordFile(CredentialProvider):
    """Return the current password, which may change while the process runs."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get_credentials(self) -> tuple[str]:
        return (_read(self._path, _MAX_PASSWORD_BYTES).decode(errors="replace").strip(),)


class _VerifiedConnection(redis.asyncio.SSLConnection):
    """A TLS connection with the current certificates; the client's own class would keep those of the first
    connection.
    """

    trusted: RedisOptions

    def _connection_arguments(self) -> Mapping[str, Any]:
        self.ssl_context.context = _context(self.trusted)
        arguments: Mapping[str, Any] = super()._connection_arguments()
        return arguments


def _context(options: RedisOptions) -> ssl.SSLContext:
    path = options.certificate_file or options.ca_file
    if path is None:
        return ssl.create_default_context()
    content = _read(path, _MAX_CERTIFICATE_BYTES)
    pinned = options.certificate_file is not None
    if pinned:
        # Only the first certificate counts: authorities follow it, which have signed those of other servers too.
        content = content.partition(_END)[0] + _END
    try:
        context = ssl.create_default_context(cadata=content.decode("ascii", errors="replace"))
    except ssl.SSLError as error:
        raise UnreadableFileError(f"{path} holds no certificate in PEM format") from error
    if pinned:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.check_hostname = False
    return context


def _read(path: Path, most_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(most_bytes)
    except OSError as error:
        raise UnreadableFileError(f"{path}: {os.strerror(error.errno or 0)}") from error
