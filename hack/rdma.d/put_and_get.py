"""A client of the Swift API, until its bodies have gone by RDMA between proxy and object server.

    python3 put_and_get.py PROXY-ADDRESS

PUT and GET of objects in turn, each compared, and the proxy's counters before and after. An emulated machine may stand
still for longer than a peer may be silent: what fails is done again, until the time is over.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import random
import re
import sys
import time

PORT = 8080
SIZES = (6 * 2**20 + 123, 200 << 10)
"""Larger than a chunk, and no multiple of one; and one that is put in one message."""
PATIENCE_S = 900.0
TAKEN_S = 15.0
"""Within this the proxy's counters have what has happened; it takes them from the native side every few seconds."""
_SAMPLE = re.compile(r'^swiftlet_transport_(lent|fetched|sent|received)_bytes_total\{peer="([^"]*)"\} (\S+)$', re.M)


class Api:
    """A client of the proxy."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._headers: dict[str, str] = {}
        self._path = ""

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        port: int = PORT,
    ) -> bytes:
        """The answer's body; OSError for an answer that is no success."""
        connection = http.client.HTTPConnection(self._host, port, timeout=180)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            data = answer.read()
            if answer.status >= 300:
                raise OSError(f"{method} {path}: {answer.status} {data[:200]!r}")
            if path == "/auth/v1.0":
                self._headers = {"X-Auth-Token": answer.headers["X-Auth-Token"]}
                self._path = "/" + answer.headers["X-Storage-Url"].split("/", 3)[3]
            return data
        except http.client.HTTPException as error:
            raise OSError(repr(error)) from error
        finally:
            connection.close()

    def log_in(self) -> None:
        """Get a token, and the container."""
        self.ask("GET", "/auth/v1.0", None, {"X-Auth-User": "test:tester", "X-Auth-Key": "testing"})
        self.ask("PUT", f"{self._path}/things", b"", self._headers)

    def put_and_get(self, name: str, data: bytes) -> None:
        """Store an object, read it, and compare both."""
        path = f"{self._path}/things/{name}"
        self.ask("PUT", path, data, {**self._headers, "ETag": hashlib.md5(data).hexdigest()})
        if self.ask("GET", path, None, self._headers) != data:
            raise SystemExit(f"error: {name} came back other than it was put")

    def counters(self) -> dict[str, int]:
        """What the proxy has lent, fetched, sent and received, in bytes, as of some seconds ago."""
        found = dict.fromkeys(("lent", "fetched", "sent", "received"), 0)
        for name, _, value in _SAMPLE.findall(self.ask("GET", "/metrics", port=PORT + 1).decode()):
            found[name] += int(float(value))
        return found


def again(what: str, end: float) -> None:
    """Something has failed: say so, wait a little; SystemExit when the time is over."""
    print(f"once more: {what}", flush=True)
    if time.monotonic() > end:
        raise SystemExit("error: the time is over")
    time.sleep(1)


def went_by_rdma(more: dict[str, int]) -> bool:
    """Whether that is all of the bodies. What an object server sends is fetched as far as it lies in its pool."""
    return more["lent"] >= sum(SIZES) and more["fetched"] >= SIZES[0]


def grown(api: Api, before: dict[str, int]) -> dict[str, int]:
    """By how much counters have grown: once that is all, or after `TAKEN_S`."""
    end = time.monotonic() + TAKEN_S
    while True:
        after = api.counters()
        more = {name: after[name] - before[name] for name in after}
        if went_by_rdma(more) or time.monotonic() > end:
            return more
        time.sleep(1)


def main(host: str) -> None:
    """Until both directions have gone by RDMA in one pass."""
    api, end = Api(host), time.monotonic() + PATIENCE_S
    while True:
        try:
            api.log_in()
            break
        except OSError as error:
            again(str(error), end)
    draw = random.Random(1)
    number = 0
    while True:
        number += 1
        try:
            before = api.counters()
            begun = time.monotonic()
            for size in SIZES:
                api.put_and_get(f"{number}-{size}", draw.randbytes(size))
            seconds = time.monotonic() - begun
            more = grown(api, before)
        except OSError as error:
            again(str(error), end)
            continue
        print(f"{sum(SIZES)} bytes put and got in {seconds:.1f} s: {json.dumps(more)}", flush=True)
        if went_by_rdma(more):
            break
        again("not all of it has gone by RDMA", end)
    status = json.loads(api.ask("GET", "/statusz", port=PORT + 1))
    print(f"the proxy: transports {status['transports']}, rdma {status['rdma']}")
    total = api.counters()
    print(f"the proxy has fetched {total['fetched']} bytes and lent {total['lent']}")


if __name__ == "__main__":
    main(sys.argv[1])
