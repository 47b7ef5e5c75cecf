"""Signatures by GnuPG, so that keys stay where they are: in its agent, or on a card."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from hack.releasing.version import ReleaseError

TIMEOUT_S = 300.0
"""A person may have to enter a PIN."""


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs with a key of GnuPG, which is named by fingerprint, key id or mail address."""

    key: str

    def clear_sign(self, text: str) -> str:
        """The text with a signature around it, by which `helm verify` knows a chart's provenance."""
        return self._run(["--clear-sign"], text.encode()).decode()

    def detached(self, path: Path) -> Path:
        """Write an armoured signature of a file beside it, and return its path."""
        signature = path.with_name(f"{path.name}.asc")
        signature.write_bytes(self._run(["--detach-sign", "--armor"], path.read_bytes()))
        return signature

    def _run(self, arguments: list[str], data: bytes) -> bytes:
        command = ["gpg", "--batch", "--yes", "--local-user", self.key, "--digest-algo", "SHA512", *arguments]
        try:
            done = subprocess.run(command, input=data, capture_output=True, timeout=TIMEOUT_S, check=False)
        except FileNotFoundError as error:
            raise ReleaseError("gpg is not installed; apt-get install gnupg, or SIGN=none") from error
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip()
            raise ReleaseError(f"gpg can't sign with {self.key}: {said}; SIGN names another key, SIGN=none makes none")
        return done.stdout
