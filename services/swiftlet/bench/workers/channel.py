"""A connection between coordinator and worker: greetings, then messages of a session."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

from swiftlet.bench.errors import BenchError
from swiftlet.bench.workers.frames import (
    LENGTH_BYTES,
    MAX_FRAME_BYTES,
    MAX_GREETING_BYTES,
    VERSION,
    Message,
    Session,
    is_proof,
    length_of,
    new_nonce,
    plain,
    proof,
    read_plain,
)

GREETING_S = 10.0
"""Seconds that the greetings may take together."""
LOST_AFTER_S = 30.0
"""Seconds of silence after which the other side is given up; both say something every second."""
MAX_NAME_CHARACTERS = 200
"""The largest number of characters of a worker's name."""


class LostError(BenchError):
    """The other side is gone."""


class Channel:
    """Messages to and from the other side. Several threads may send, one receives."""

    def __init__(self, sock: socket.socket, session: Session) -> None:
        """Both sides have proved themselves."""
        self._sock, self._session = sock, session
        self._sending = threading.Lock()

    def send(self, message: Message) -> None:
        """Send a message; LostError when nobody takes it."""
        with self._sending:
            frame = self._session.frame(message)
            try:
                self._sock.settimeout(LOST_AFTER_S)
                self._sock.sendall(frame)
            except OSError as error:
                raise LostError(f"the connection broke: {error}") from error

    def receive(self) -> Message:
        """The next message; LostError when there is none for too long, or the connection ends."""
        return self._session.read(_body(self._sock, MAX_FRAME_BYTES, time.monotonic() + LOST_AFTER_S))

    def close(self) -> None:
        """End the connection, and the wait of who receives."""
        with contextlib.suppress(OSError):  # The other side was faster.
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


def welcome(sock: socket.socket, token: str, number: int) -> tuple[str, Channel]:
    """The coordinator's side of the greetings: the worker's name; BenchError when it has no business here."""
    deadline, nonce = time.monotonic() + GREETING_S, new_nonce()
    _send_plain(sock, {"kind": "hello", "version": VERSION, "nonce": nonce})
    answer = read_plain(_body(sock, MAX_GREETING_BYTES, deadline))
    theirs = str(answer.get("nonce"))
    why = None
    if answer.get("version") != VERSION:
        why = f"the worker speaks version {answer.get('version')}, the coordinator {VERSION}: use one release"
    elif not is_proof(answer.get("proof"), token, "worker", nonce, theirs):
        why = "the worker has another token"
    if why is not None:
        _send_plain(sock, {"kind": "refused", "why": why})
        raise BenchError(why)
    _send_plain(sock, {"kind": "welcome", "number": number, "proof": proof(token, "coordinator", nonce, theirs)})
    name = str(answer.get("name"))[:MAX_NAME_CHARACTERS]
    return name, Channel(sock, Session(token, "coordinator", nonce, theirs))


def greet(sock: socket.socket, token: str, name: str) -> Channel:
    """The worker's side of the greetings; BenchError when the coordinator refuses, or is none: then it is closed."""
    try:
        return _greeted(sock, token, name)
    except BenchError:
        sock.close()
        raise


def _greeted(sock: socket.socket, token: str, name: str) -> Channel:
    deadline, nonce = time.monotonic() + GREETING_S, new_nonce()
    hello = read_plain(_body(sock, MAX_GREETING_BYTES, deadline))
    theirs = str(hello.get("nonce"))
    shown = proof(token, "worker", theirs, nonce)
    _send_plain(sock, {"kind": "hello", "version": VERSION, "nonce": nonce, "name": name, "proof": shown})
    answer = read_plain(_body(sock, MAX_GREETING_BYTES, deadline))
    if answer["kind"] == "refused":
        raise BenchError(f"the coordinator refused: {answer.get('why')}")
    if not is_proof(answer.get("proof"), token, "coordinator", theirs, nonce):
        raise BenchError("who answers at the coordinator's address does not have the token")
    return Channel(sock, Session(token, "worker", theirs, nonce))


def _send_plain(sock: socket.socket, message: Message) -> None:
    try:
        sock.settimeout(GREETING_S)
        sock.sendall(plain(message))
    except OSError as error:
        raise LostError(f"the connection broke: {error}") from error


def _body(sock: socket.socket, most: int, deadline: float) -> bytes:
    return _exactly(sock, length_of(_exactly(sock, LENGTH_BYTES, deadline), most), deadline)


def _exactly(sock: socket.socket, count: int, deadline: float) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        try:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            part = sock.recv(min(count - len(parts), 1 << 16))
        except TimeoutError as error:
            raise LostError("nothing was heard for too long") from error
        except OSError as error:
            raise LostError(f"the connection broke: {error}") from error
        if not part:
            raise LostError("the connection was closed")
        parts += part
    return bytes(parts)
