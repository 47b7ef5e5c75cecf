"""Clients that move objects to and from the devices themselves, held to the same model as those of the front.

What can't go directly at a moment, as devices or metadata servers are away, the client sends over HTTP by itself.
"""

from __future__ import annotations

import random
import time
from urllib.parse import urlsplit

from e2e.kills.hot_clients import WITHOUT_PROXY_S, HotWorker
from e2e.standalone.model_clients import NUMBER, PATIENCE_S, Model
from e2e.standalone.model_history import Operation
from e2e.standalone.wire import Answer
from e2e.standalone.wire import Client as Wire
from swiftlet.client import V1, Client, ClientError, Options, StatusError
from swiftlet.client.values import ObjectInfo

_NAME = NUMBER.lower().removeprefix("x-object-meta-")


class DirectWorker(HotWorker):
    """One client with direct access: a thread steps it."""

    def __init__(
        self, client: Wire, model: Model, chooser: random.Random, user: str, key: str, metadata_url: str
    ) -> None:
        """`chooser` decides what it does, with the rights of a user."""
        super().__init__(client, model, chooser, client.endpoint)
        parts = urlsplit(client.endpoint)
        login = V1(auth_url=f"http://{parts.netloc}/auth/v1.0", user=user, key=key)
        # What is repeated would be two operations for the model.
        options = Options(metadata_url=metadata_url, retries=0, hedge=False, read_timeout_s=PATIENCE_S)
        self._store = Client(login, options)
        self.requests = 0

    @property
    def directly(self) -> int:
        """How many requests did not go over HTTP."""
        return self.requests - self._store.asynchronous.over_http

    def close(self) -> None:
        super().close()
        self._store.close()

    def step(self) -> None:
        does = [self.put, self.delete, self.read]
        self._chooser.choices(does, [10, 4, 8])[0](self._path())

    def _leaves(self, operation: Operation, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> bool:
        return False

    def _call(self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"") -> Answer:
        begun = time.monotonic()
        container, _, name = path.partition("/")
        self.requests += 1
        try:
            answer = self._answer(method, container, name, headers or {}, body)
        except StatusError as error:
            answer = Answer(error.status, {}, str(error).encode())
        except ClientError:
            answer = Answer(0, {}, b"")
        with self._model.lock:
            self._model.counts[f"direct {method} {answer.status}"] += 1
            if time.monotonic() - begun > 2 * PATIENCE_S:
                # First directly, then over HTTP.
                self._model.wrong.append(f"direct {method} of {path} took {time.monotonic() - begun:.0f} s")
        if answer.status == 0:
            time.sleep(WITHOUT_PROXY_S)
        return answer

    def _answer(self, method: str, container: str, name: str, headers: dict[str, str], body: bytes) -> Answer:
        if method == "PUT":
            metadata = {_NAME: headers[NUMBER]}
            self._store.put(container, name, body, content_type=headers["Content-Type"], metadata=metadata)
            return Answer(201, {}, b"")
        if method == "DELETE":
            self._store.delete(container, name)
            return Answer(204, {}, b"")
        if method == "HEAD":
            return Answer(200, _shown(self._store.head(container, name)), b"")
        found = self._store.get(container, name)
        return Answer(200, _shown(found.info), found.data)


def _shown(info: ObjectInfo) -> dict[str, str]:
    found = {"Etag": info.etag, "Content-Length": str(info.size), "Content-Type": info.content_type}
    return found | ({NUMBER: info.metadata[_NAME]} if _NAME in info.metadata else {})
