"""Clients whose requests the native front answers: small PUTs, overwrites, DELETEs, GETs and listings, at random.

They are clients of `model_clients` that send nothing but what the front takes, over HTTP or HTTPS.
"""

from __future__ import annotations

import http.client
import random
import ssl
import time
from urllib.parse import urlsplit

from e2e.standalone.model_clients import Connection, Model, Worker
from e2e.standalone.model_history import History
from e2e.standalone.wire import Answer, Client

CONTAINERS = 2
NAMES = 24
"""Objects in each container: few enough that clients meet at them all the time."""
SIZES = ((0, 3000), (3000, 60_000), (70_000, 200_000), (1_100_000, 4_000_000))
"""Bytes of bodies, from and to: in the front's own memory, and in the memory of the transport."""

WITHOUT_PROXY_S = 0.2
"""A client whose connection broke waits so long, as its proxy may be away."""


def hot_model(prefix: str) -> Model:
    """Return a model of objects that do not exist yet, in containers whose names begin so."""
    names = [f"o{number}" for number in range(NAMES)]
    return Model({f"{prefix}{at}/{name}": History() for name in names for at in range(CONTAINERS)})


class HotConnection(Connection):
    """A connection to one proxy, by TLS if there is a context for it. Only PUTs say how long their body is."""

    def __init__(self, client: Client, endpoint: str, trust: ssl.SSLContext | None) -> None:
        super().__init__(client)
        parts = urlsplit(endpoint)
        if trust is not None:
            self._http = http.client.HTTPSConnection(
                parts.hostname or "", parts.port, timeout=self._http.timeout, context=trust
            )

    def _headers(self, headers: dict[str, str], body: bytes) -> dict[str, str]:
        found = super()._headers(headers, body)
        if "Content-Type" not in headers:
            del found["Content-Length"]
        return found


class HotWorker(Worker):
    """One client: a thread steps it."""

    def __init__(
        self, client: Client, model: Model, chooser: random.Random, endpoint: str, trust: ssl.SSLContext | None = None
    ) -> None:
        """`chooser` decides what it does."""
        super().__init__(client, model, chooser)
        self._connections = [HotConnection(client, endpoint, trust) for _ in self._connections]

    def step(self) -> None:
        does = [self.put, self.delete, self.read, self.list]
        self._chooser.choices(does, [10, 4, 8, 1])[0](self._path())

    def list(self, path: str) -> None:
        """List its container: whichever replica answers, it lists names of the model alone, in order, once each."""
        container = path.partition("/")[0]
        answer = self._call("GET", container)
        if answer.status in {0, 503}:
            return
        names = answer.text.splitlines()
        known = {path.partition("/")[2] for path in self._paths}
        if answer.status not in {200, 204} or names != sorted(set(names)) or not known.issuperset(names):
            with self._model.lock:
                self._model.wrong.append(f"the listing of {container} is {answer.status}: {answer.text[:500]}")

    def _call(self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"") -> Answer:
        answer = super()._call(method, path, headers, body)
        if answer.status == 0:
            time.sleep(WITHOUT_PROXY_S)
        return answer

    def _path(self) -> str:
        return self._chooser.choice(self._paths)

    def _body(self) -> bytes:
        least, most = self._chooser.choices(SIZES, [80, 14, 4, 2])[0]
        return self._chooser.randbytes(self._chooser.randrange(least, most))
