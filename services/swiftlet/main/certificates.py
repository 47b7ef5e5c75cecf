"""The certificate of the API's port: read again when its files change, and used for new connections then.

Open connections keep the certificate that they began with. Each worker process reads for itself.

Fault model: as in `swiftlet.main.reloading`: files that are gone, damaged, or of two certificates leave the last good
pair in use. At the start they keep the service from running. Clients may speak no TLS, an old version of it, or begin
and never end: the TLS library refuses them or ends them after its time limit, and they cost only their connection.
"""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

from prometheus_client import Counter, Gauge

from swiftlet.errors import SettingsError
from swiftlet.main.certificate_dates import expires_at
from swiftlet.main.reloading import Look, look_at
from swiftlet.web.logs import get_logger

_SECRET_BYTES = 32

_log = get_logger("certificates")

FAILURES = Counter("swiftlet_tls_load_failures_total", "Changed certificate files that could not be used.")
EXPIRY = Gauge(
    "swiftlet_tls_certificate_expiry_timestamp_seconds",
    "When the API port's certificate, or one of its chain, expires; 0 without one, and when that can't be read.",
    # Without workers the number is 0; workers differ only until all of them have read the files.
    multiprocess_mode="livemax",
)


class Certificates:
    """A certificate with its chain and its key, in PEM files."""

    def __init__(self, cert_file: Path, key_file: Path) -> None:
        """Read the files. Raises SettingsError when they can't be used."""
        self._cert_file = cert_file
        self._key_file = key_file
        self._seen: Look | None = None
        self._current = _context()
        self.expires_at = 0.0
        """When the first certificate of the chain in use expires, in seconds since the epoch."""
        self.context = _context()
        """The context that a server listens with: it gives each connection the pair in use."""
        self.pem = (b"", b"")
        """The pair in use, as the files have it."""
        self.ticket_secret = os.urandom(_SECRET_BYTES)
        """The secret of session tickets: processes that are forked later share it."""
        self._use: Callable[[bytes, bytes], None] | None = None
        self._lock = threading.Lock()
        self.reload()
        # The library requires a certificate here too, before it asks for another one per connection.
        self._load(self.context)
        self.context.sni_callback = self._choose

    def reload(self) -> bool:
        """Read the files if they changed; return whether they had. SettingsError leaves the last good pair in use."""
        while True:
            look = self._look()
            if look == self._seen:
                return False
            # A context that fails halfway has half a pair, so a new one is tried each time.
            context = _context()
            self._load(context)
            pem = self._read_pem()
            # What was put in place meanwhile would be in one of the two alone, and would count as unread.
            if self._look() == look:
                break
        with self._lock:
            self._pass_on(*pem)
            self._current, self._seen, self.pem, self.expires_at = context, look, pem, self._read_expiry()
        return True

    def follow(self, use: Callable[[bytes, bytes], None] | None) -> None:
        """Call `use` with the certificate and key in use, and with those of each later pair, in the thread that reads
        them, before the pair is in use. None calls nobody any more.

        It raises ValueError to refuse a pair; then the last one stays in use.
        """
        with self._lock:
            self._use = use
            if use is not None:
                use(*self.pem)

    def _look(self) -> Look:
        try:
            return look_at([self._cert_file, self._key_file])
        except OSError as error:
            raise SettingsError(f"proxy.tls_cert_file: can't read {error.filename}: {error.strerror}") from error

    def _read_pem(self) -> tuple[bytes, bytes]:
        try:
            return self._cert_file.read_bytes(), self._key_file.read_bytes()
        except OSError as error:
            raise SettingsError(f"proxy.tls_cert_file: can't read {error.filename}: {error.strerror}") from error

    def _pass_on(self, cert: bytes, key: bytes) -> None:
        try:
            if self._use is not None:
                self._use(cert, key)
        except ValueError as error:
            raise SettingsError(
                f"proxy.tls_cert_file: the native front can't use {self._cert_file} and {self._key_file} (a start with "
                f"them leaves TLS to Python): {error}"
            ) from error

    def show(self) -> None:
        """Report to Prometheus until when the pair in use is valid; each worker process does so for itself."""
        EXPIRY.set(self.expires_at)

    def _read_expiry(self) -> float:
        try:
            return expires_at(self._cert_file.read_text("utf-8", "replace"))
        except (OSError, ValueError) as error:
            # The TLS library has accepted the pair, so it is used all the same.
            _log.warning(
                "the expiry date of the certificate can't be read", file=str(self._cert_file), problem=str(error)
            )
            return 0.0

    def _load(self, context: ssl.SSLContext) -> None:
        try:
            context.load_cert_chain(self._cert_file, self._key_file, password=self._refuse_password)
        except OSError as error:
            reason = getattr(error, "reason", None) or error.strerror or str(error)
            raise SettingsError(
                f"proxy.tls_cert_file: {self._cert_file} and {self._key_file} are not a certificate and "
                "its key in PEM format: "
                f"{reason}"
            ) from error

    def _refuse_password(self) -> str:
        # Without this the library would ask for a passphrase at the terminal.
        raise SettingsError(f"proxy.tls_key_file: {self._key_file} is encrypted; use a key without a password")

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Give a connection the pair in use; the TLS library calls this whether or not the client names a host."""
        connection.context = self._current


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context
