"""A small store in this process that speaks as much Swift as the generator does; it can be told to fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

Fault = Callable[[str, str, int], int | None]
"""Given method, path and the number of the request: a status to answer with, None to do what was asked."""


class Store(ThreadingHTTPServer):
    """The store, by paths; it serves in a thread."""

    daemon_threads = True
    # A connection that finds no room in the queue is made a second later.
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.containers: set[str] = set()
        self.asked: list[tuple[str, str]] = []
        self.fault: Fault = lambda *_: None
        self.change: Callable[[bytes], bytes] = lambda body: body
        self.tokens: set[str] = set()
        self.signatures: list[str] = []
        """What requests had in Authorization."""
        self.depth = 4
        """Slashes in the path of an object."""
        self.lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        """The store's address."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer in one piece: otherwise its second part waits for the client's acknowledgement of the first.
    wbufsize = -1
    disable_nagle_algorithm = True
    server: Store

    def handle_one_request(self) -> None:
        """Serve a request; a client that has gone is none of our business."""
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.server.lock:
            status, answer = self._answer(body)
        self.send_response(status)
        if self.path == "/auth/v1.0":
            self.send_header("X-Storage-Url", f"{self.server.endpoint}/v1/AUTH_test")
            self.send_header("X-Auth-Token", "token")
        if status != 204:
            self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)
        self.wfile.flush()

    do_GET = do_PUT = do_DELETE = do_HEAD = _serve

    def _answer(self, body: bytes) -> tuple[int, bytes]:
        store, parts = self.server, urlsplit(self.path)
        path = parts.path
        if path == "/auth/v1.0":
            return (200 if self.headers["X-Auth-Key"] == "secret" else 401), b""
        store.asked.append((self.command, path))
        store.tokens.add(self.headers["X-Auth-Token"])
        store.signatures.append(self.headers.get("Authorization", ""))
        if (status := store.fault(self.command, path, len(store.asked))) is not None:
            return status, b""
        is_object = path.count("/") == store.depth
        match self.command, is_object:
            case "PUT", True:
                store.objects[path] = body
                return 201, b""
            case "PUT", False:
                store.containers.add(path)
                return 201, b""
            case "DELETE", True:
                return (204 if store.objects.pop(path, None) is not None else 404), b""
            case "DELETE", False:
                if any(name.startswith(f"{path}/") for name in store.objects):
                    return 409, b""
                store.containers.discard(path)
                return 204, b""
            case _, False:
                query = parse_qs(parts.query)
                names = sorted(name.removeprefix(f"{path}/") for name in store.objects if name.startswith(f"{path}/"))
                page = [name for name in names if name > query["marker"][0]][: int(query["limit"][0])]
                return (200 if page else 204), "".join(f"{name}\n" for name in page).encode()
        if path not in store.objects:
            return 404, b""
        return 200, store.change(store.objects[path])

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@contextmanager
def running() -> Iterator[Store]:
    """Within the block a store runs."""
    with Store() as store:
        thread = threading.Thread(target=store.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield store
        finally:
            store.shutdown()
            thread.join()
