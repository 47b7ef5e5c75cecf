"""Run in an image: start a whole store in /tmp, put objects into it and read them back.

    python3 - < hack/image_store.py

It needs nothing but the image, a loopback interface and /tmp. Emulated it takes minutes, so it waits for long.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PORT = 8080
KEY = "of-this-check"
READY_WITHIN_S = 900
SIZES = (0, 1, 4096, 65_537, 3 << 20)
"""Bytes of the objects: empty, in one record, and larger than what travels in one round trip."""


def ask(method: str, path: str, body: bytes = b"", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    """One request on a connection of its own; headers are named with underscores. Exits unless it succeeds."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=120)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    if response.status >= 300:
        sys.exit(f"error: {method} {path} answers {response.status}: {content[:200]!r}")
    return response, content


def wait_until_ready(store: subprocess.Popen[bytes], ready: Path) -> None:
    """Return when the store has written its file; exits if it ends or the time is over."""
    deadline = time.monotonic() + READY_WITHIN_S
    while not ready.exists():
        if store.poll() is not None:
            sys.exit(f"error: the store ended with {store.returncode} before it was ready")
        if time.monotonic() > deadline:
            sys.exit(f"error: the store is not ready after {READY_WITHIN_S} s")
        time.sleep(0.2)


def check_objects() -> None:
    """Put, list, get and delete objects; exits when anything is not as it was put."""
    login, _ = ask("GET", "/auth/v1.0", X_Auth_User="test:tester", X_Auth_Key=KEY)
    token = login.headers["X-Auth-Token"]
    account = "/v1/" + login.headers["X-Storage-Url"].rsplit("/", 1)[1]
    ask("PUT", f"{account}/box", X_Auth_Token=token)
    bodies = {f"{size:08}": bytes(at * 31 % 251 for at in range(size)) for size in SIZES}
    for name, body in bodies.items():
        put, _ = ask("PUT", f"{account}/box/{name}", body, X_Auth_Token=token)
        if put.headers["ETag"] != hashlib.md5(body, usedforsecurity=False).hexdigest():
            sys.exit(f"error: the ETag of {len(body)} bytes is {put.headers['ETag']}")
    for name, body in bodies.items():
        _, got = ask("GET", f"{account}/box/{name}", X_Auth_Token=token)
        if got != body:
            sys.exit(f"error: {len(body)} bytes were put, and {len(got)} other ones came back")
    _, listed = ask("GET", f"{account}/box?format=json", X_Auth_Token=token)
    sizes = {one["name"]: one["bytes"] for one in json.loads(listed)}
    if sizes != {name: len(body) for name, body in bodies.items()}:
        sys.exit(f"error: the listing is {listed!r}")
    for name in bodies:
        ask("DELETE", f"{account}/box/{name}", X_Auth_Token=token)


def main() -> None:
    """Say on one line what was done, or exit with what is wrong."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        command = ["swiftlet", "standalone", "--port", str(PORT), "--data", f"{folder}/data", "--key", KEY]
        store = subprocess.Popen([*command, "--workers", "1", "--quiet", "--ready-file", str(ready)])
        try:
            wait_until_ready(store, ready)
            started_s = time.monotonic() - began
            check_objects()
        finally:
            store.terminate()
            ended = store.wait(120)
        if ended != 0:
            sys.exit(f"error: the store ended with {ended}")
    spent = f"ready after {started_s:.0f} s, {time.monotonic() - began:.0f} s in all"
    sys.stdout.write(f"{len(SIZES)} objects put, read back, listed and deleted on {platform.machine()}, {spent}\n")


if __name__ == "__main__":
    main()
