"""Answers on sync streams for an object server: a thread serves all requests of a message that need a device.

Fault model: one request may fail or be malformed without the others. A device that is not here, or has too many
requests, refuses all of a message. Answers are made a few at a time, so that few bytes of them wait for the network.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from swiftlet.errors import DeviceFailed, SwiftletError
from swiftlet.servers.objects.metrics import REQUESTS
from swiftlet.servers.objects.object_device import ObjectDevice
from swiftlet.servers.objects.object_requests import at_work, note_failure
from swiftlet.servers.objects.sync_copies import read_copies, take_copies
from swiftlet.servers.shared.sync_answers import PlacedBy, answer_sync, nowhere
from swiftlet.store.protocol import Store
from swiftlet.transport import sync_wire
from swiftlet.transport.sync_wire import Answer, Request
from swiftlet.transport.wire import WireError

_OPERATIONS = {sync_wire.QUESTION: "sync", sync_wire.READ: "read-copies", sync_wire.WRITE: "take-copies"}
"""The names under which the kinds of requests are counted."""


class ObjectSync:
    """The responder of an object server's sync streams."""

    def __init__(self, devices: Mapping[str, ObjectDevice], placed: Mapping[str, PlacedBy]) -> None:
        """`placed` tells where rings put the devices, for those that are in any ring."""
        self._devices = devices
        self._placed = placed

    async def respond(self, name: str, requests: Sequence[Request]) -> AsyncIterator[Sequence[Answer]]:
        """Yield the answers to a message's requests, a few at a time.

        DeviceFailed and NodeBusy are raised for all requests that have no answer yet.
        """
        device = self._devices.get(name)
        if device is None:
            raise DeviceFailed(f"device {name} is not served here; is the ring newer than this server?")
        placed = self._placed.get(name, nowhere)
        with at_work(device.pool):
            done = 0
            while done < len(requests):
                answers = await device.pool.run(_some, device.store, requests[done:], placed)
                for request, answer in zip(requests[done:], answers, strict=False):
                    _count(name, request, answer)
                yield answers
                done += len(answers)


def _count(device: str, request: Request, answer: Answer) -> None:
    operation, outcome = _OPERATIONS.get(request.kind, "unknown"), "ok"
    if isinstance(answer, SwiftletError):
        outcome = type(answer).__name__
        note_failure(device, operation, answer)
    REQUESTS.labels(device, operation, outcome).inc()


def _some(store: Store, requests: Sequence[Request], placed: PlacedBy) -> list[Answer]:
    """Return the answers of the first requests, until they are enough for a message; at least one."""
    answers: list[Answer] = []
    size = 0
    for request in requests:
        try:
            answer = _one(store, request, placed)
        except SwiftletError as error:
            answers.append(error)
            continue
        answers.append(answer)
        size += len(answer)
        if size > sync_wire.SENT_BYTES:
            break
    return answers


def _one(store: Store, request: Request, placed: PlacedBy) -> bytes:
    if request.kind == sync_wire.QUESTION:
        return answer_sync(store, request.payload, placed)
    if request.kind == sync_wire.READ:
        return read_copies(store, request.payload)
    if request.kind == sync_wire.WRITE:
        return take_copies(store, request.payload)
    raise WireError(f"a request of the unknown kind {request.kind} on a sync stream")
