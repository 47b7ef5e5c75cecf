"""Store an object, fetch it, compare, remove: what `helm test` runs, with the credentials that are mounted for it."""

from __future__ import annotations

import http.client
import os
import secrets
import sys
from pathlib import Path
from urllib.parse import urlsplit

CREDENTIALS = Path(os.environ.get("CREDENTIALS", "/etc/swiftlet/credentials"))
SIZE_BYTES = 3 * 1024 * 1024 + 1
"""More than fits one request between the services, and no round number."""
TIMEOUT_S = 30


class Unexpected(Exception):
    """An answer that a working store would not give."""


def ask(
    method: str, url: str, headers: dict[str, str], body: bytes = b"", *, status: int = 2
) -> tuple[dict[str, str], bytes]:
    """One request; the answer's headers, in lower case, and its body. Unexpected unless its status is `status`xx."""
    parts = urlsplit(url)
    connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = connect(parts.netloc, timeout=TIMEOUT_S)
    try:
        connection.request(method, parts.path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    if answer.status // 100 != status:
        raise Unexpected(f"{method} {url}: {answer.status} {answer.reason} {content[:200]!r}")
    return {name.lower(): value for name, value in answer.getheaders()}, content


def credential(name: str) -> str:
    """One key of the user's secret."""
    return (CREDENTIALS / name).read_text().strip()


def main() -> None:
    """Do it once; an exception is a failed test."""
    login = {"X-Auth-User": credential("user"), "X-Auth-Key": credential("key")}
    known, _ = ask("GET", credential("authUrl"), login)
    headers = {"X-Auth-Token": known["x-auth-token"]}
    container = f"{known['x-storage-url']}/helm-test-{secrets.token_hex(8)}"
    content = secrets.token_bytes(SIZE_BYTES)
    ask("PUT", container, headers)
    try:
        ask("PUT", f"{container}/object", headers, content)
        _, fetched = ask("GET", f"{container}/object", headers)
        if fetched != content:
            raise Unexpected(f"{len(fetched)} bytes were fetched that are not the {len(content)} that were stored")
        ask("DELETE", f"{container}/object", headers)
    finally:
        ask("DELETE", container, headers)
    sys.stdout.write(f"{SIZE_BYTES} bytes stored and fetched at {container}\n")


if __name__ == "__main__":
    main()
