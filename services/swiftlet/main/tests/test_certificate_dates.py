"""When certificates expire, as `openssl` says it, and what is read of damaged ones."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftlet.main.certificate_dates import expires_at
from swiftlet.main.certificates import EXPIRY, Certificates
from swiftlet.main.tests.certificates import PairFiles, make_pair, make_short_pair
from swiftlet.web.shared_metrics import DIRECTORY_VARIABLE


def certificate(directory: Path, days: int) -> tuple[str, float]:
    """A certificate, and when it expires according to `openssl`."""
    cert = directory / f"{days}.crt"
    made = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost"
    files = ["-days", str(days), "-keyout", str(directory / "key"), "-out", str(cert)]
    subprocess.run([*made.split(), *files], check=True, capture_output=True)
    asked = ["openssl", "x509", "-enddate", "-noout", "-in", str(cert)]
    text = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip().partition("=")[2]
    return cert.read_text(), datetime.strptime(text, "%b %d %H:%M:%S %Y GMT").replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize("days", [1, 365, 20_000])
def test_the_end_is_what_openssl_says(tmp_path: Path, days: int) -> None:
    text, end = certificate(tmp_path, days)
    assert expires_at(text) == end


def test_an_end_within_hours(tmp_path: Path) -> None:
    pair = make_short_pair(tmp_path, "short", hours=2)
    assert 7_000 < expires_at(pair.cert.decode()) - time.time() <= 7_200


def test_a_chain_is_as_good_as_its_first_that_ends(tmp_path: Path) -> None:
    (late, _), (early, end) = certificate(tmp_path, 300), certificate(tmp_path, 3)
    assert expires_at(f"comment\n{late}{early}") == end


@pytest.mark.parametrize("text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"])
def test_what_is_no_certificate_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        expires_at(text)


@given(st.binary(max_size=60))
def test_damage_is_a_value_error(content: bytes) -> None:
    body = base64.encodebytes(b"\x30\x40\x30\x3e" + content).decode()
    try:
        expires_at(f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n")
    except ValueError:
        return


def test_a_renewed_certificate_moves_the_gauge(tmp_path: Path) -> None:
    first = make_pair(tmp_path, "first")
    files = PairFiles(tmp_path, first)
    certificates = Certificates(files.cert, files.key)
    certificates.show()
    assert EXPIRY._value.get() == expires_at(first.cert.decode())
    text, end = certificate(tmp_path, 900)
    files.put(text.encode(), (tmp_path / "key").read_bytes())
    assert certificates.reload()
    certificates.show()
    assert EXPIRY._value.get() == end


_WORKER = """
import os, sys
from swiftlet.main.certificates import EXPIRY
from swiftlet.web.metrics import metrics_page
if os.fork() == 0:
    EXPIRY.set(1_900_000_000.0)
    sys.stdout.write(metrics_page()[0].decode())
    sys.stdout.flush()
    os._exit(0)
os.wait()
"""


def test_with_worker_processes_the_workers_value_is_shown(tmp_path: Path) -> None:
    """The process that starts them never sets it, and its 0 must not hide theirs."""
    environ = {**os.environ, DIRECTORY_VARIABLE: str(tmp_path)}
    shown = subprocess.run(
        [sys.executable, "-c", _WORKER], env=environ, check=True, capture_output=True, text=True
    ).stdout
    assert "swiftlet_tls_certificate_expiry_timestamp_seconds 1.9e+09\n" in shown
