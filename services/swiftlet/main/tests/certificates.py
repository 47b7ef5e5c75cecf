"""Certificates for tests, made by the `openssl` command and thrown away with the test."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Pair:
    """A self-signed certificate for localhost and its key, in PEM."""

    cert: bytes
    key: bytes


def make_pair(directory: Path, name: str) -> Pair:
    """A pair whose subject is `name`."""
    cert, key = directory / f"{name}.crt", directory / f"{name}.key"
    made = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(cert)]
    subprocess.run([*made.split(), *names, *files], check=True, capture_output=True)
    return Pair(cert.read_bytes(), key.read_bytes())


def make_short_pair(directory: Path, name: str, hours: int) -> Pair:
    """A pair that is good for hours, where `openssl req` only knows days."""
    request, key, cert = (directory / f"{name}.{kind}" for kind in ("csr", "key", "crt"))
    config, index = directory / f"{name}.cnf", directory / f"{name}.index"
    index.touch()
    config.write_text(
        f"[ca]\ndefault_ca=own\n[own]\ndatabase={index}\nnew_certs_dir={directory}\nrand_serial=yes\n"
        "default_md=sha256\npolicy=any\ncopy_extensions=copy\n[any]\ncommonName=supplied\n"
    )
    made = "openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    names = ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*made.split(), *names, "-keyout", key, "-out", request], check=True, capture_output=True)
    ends = f"{datetime.now(UTC) + timedelta(hours=hours):%y%m%d%H%M%SZ}"
    signed = ["openssl", "ca", "-batch", "-notext", "-selfsign", "-enddate", ends]
    subprocess.run(
        [*signed, "-config", config, "-keyfile", key, "-in", request, "-out", cert], check=True, capture_output=True
    )
    return Pair(cert.read_bytes(), key.read_bytes())


class PairFiles:
    """The files that a server reads, put in place as Kubernetes does: both at once, by one link."""

    def __init__(self, directory: Path, pair: Pair) -> None:
        """Have the files below `directory`."""
        self._directory = directory
        self._count = 0
        self.cert, self.key = directory / "current" / "tls.crt", directory / "current" / "tls.key"
        self.put(pair.cert, pair.key)

    def put(self, cert: bytes, key: bytes) -> None:
        """Replace both."""
        self._count += 1
        version = self._directory / f"version-{self._count}"
        version.mkdir()
        (version / "tls.crt").write_bytes(cert)
        (version / "tls.key").write_bytes(key)
        (self._directory / "next").symlink_to(version)
        os.replace(self._directory / "next", self._directory / "current")
