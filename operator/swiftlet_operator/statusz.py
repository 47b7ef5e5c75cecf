"""Asking the pods of a cluster how they are, and for rings and sealed keys that the cluster has lost, by their IPs.

Where to ask is read from the pod itself: its containers are named as their services are. A service with a port called
`management` is asked there in plain HTTP, others at their first port, of which the readiness probe says whether it
speaks TLS. Certificates are not verified: we come by IP, tell nothing, and what is answered
is fingerprints and counts.

Fault model: pods are away, refuse, hang, answer with errors, with too much or with nonsense. Each of these is no
report of that service and no ring, within the time limit, and changes nothing about the others. A ring has a digest,
and a sealed copy of keys the code of who sealed it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import aiohttp

from swiftlet.ring import Ring, RingError, codec
from swiftlet_operator.manifests import Manifest, name_of, told_at
from swiftlet_operator.reports import SERVICES, Report, Reports, parse_report

PATH = "/statusz"
RING_PATH = "/rings/{}"
SEALED_PATH = "/sealed-keys"
TIMEOUT_S = 2.0
RING_TIMEOUT_S = 20.0
AT_A_TIME = 64
MAX_BYTES = 64 * 1024
MAX_RING_BYTES = 64 * 1024 * 1024
MAX_COPIES_BYTES = 512 * 1024
_KEEPERS = frozenset({"object", "container", "proxy", "metadata"})
"""Services that hand out the rings that they use."""
_DEVICES = frozenset({"object", "container"})
"""Services that keep sealed copies of the keys."""
_OVER = frozenset({"Failed", "Succeeded"})

_log = logging.getLogger(__name__)


class Reporter(Protocol):
    """Asks pods for their reports."""

    async def reports(self, pods: Sequence[Manifest]) -> Reports:
        """What those of the pods' services say that answer; never raises for one that doesn't."""
        ...

    async def ring(self, pods: Sequence[Manifest], ring: str) -> Ring | None:
        """A ring as the first of these pods has it that hands it out; None when none does."""
        ...

    async def sealed_keys(self, pods: Sequence[Manifest]) -> Sequence[bytes]:
        """The sealed copies of the keys that these pods hand out; never raises for a pod that has none."""
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """Where one service of one pod is asked."""

    pod: str
    service: str
    url: str


def questions(pod: Manifest, path: str = PATH) -> list[Question]:
    """Where the services of a pod answer to `path`: nowhere before it has an address or when it is over."""
    status = pod.get("status") or {}
    address = status.get("podIP")
    if not address or status.get("phase") in _OVER:
        return []
    host = f"[{address}]" if ":" in address else address
    found = []
    for container in pod["spec"].get("containers") or []:
        ports = container.get("ports") or []
        if container["name"] not in SERVICES or not ports:
            continue
        scheme, port = told_at(container)
        found.append(Question(name_of(pod), container["name"], f"{scheme}://{host}:{port}{path}"))
    return found


class HttpReporter:
    """Asks pods for their reports over HTTP."""

    def __init__(
        self, session: aiohttp.ClientSession, timeout_s: float = TIMEOUT_S, ring_timeout_s: float = RING_TIMEOUT_S
    ) -> None:
        """A pod has `timeout_s` for its report from when it is its turn, and `ring_timeout_s` for a ring."""
        self._session = session
        self._timeout_s = timeout_s
        self._ring_timeout_s = ring_timeout_s
        self._turns = asyncio.Semaphore(AT_A_TIME)

    async def reports(self, pods: Sequence[Manifest]) -> Reports:
        asked = [question for pod in pods for question in questions(pod)]
        answers = await asyncio.gather(*(self._ask(question) for question in asked))
        found: dict[str, dict[str, Report]] = {}
        for question, report in zip(asked, answers, strict=True):
            if report is not None:
                found.setdefault(question.pod, {})[question.service] = report
        return found

    async def ring(self, pods: Sequence[Manifest], ring: str) -> Ring | None:
        asked = [one for pod in pods for one in questions(pod, RING_PATH.format(ring)) if one.service in _KEEPERS]
        for question in asked:
            body = await self._get(question, self._ring_timeout_s, MAX_RING_BYTES)
            try:
                if body is not None:
                    return codec.decode(body)
            except RingError as error:
                _log.warning("the ring %s of %s in %s is damaged: %s", ring, question.service, question.pod, error)
        return None

    async def sealed_keys(self, pods: Sequence[Manifest]) -> Sequence[bytes]:
        asked = [one for pod in pods for one in questions(pod, SEALED_PATH) if one.service in _DEVICES]
        bodies = await asyncio.gather(*(self._get(one, self._timeout_s, MAX_COPIES_BYTES) for one in asked))
        return list(dict.fromkeys(copy for body in bodies if body is not None for copy in _copies(body)))

    async def _ask(self, question: Question) -> Report | None:
        body = await self._get(question, self._timeout_s, MAX_BYTES)
        return parse_report(question.service, body) if body is not None else None

    async def _get(self, question: Question, timeout_s: float, most_bytes: int) -> bytes | None:
        try:
            async with (
                self._turns,
                asyncio.timeout(timeout_s),
                self._session.get(question.url, ssl=False, allow_redirects=False) as response,
            ):
                return await _limited(response, most_bytes) if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            _log.debug("no answer of %s in %s: %r", question.service, question.pod, error)
            return None


def _copies(body: bytes) -> list[bytes]:
    """The sealed copies in an answer; none when it is nonsense."""
    try:
        return [base64.b64decode(text, validate=True) for text in json.loads(body)["copies"].values()]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return []


async def _limited(response: aiohttp.ClientResponse, most_bytes: int) -> bytes | None:
    """The body, None when it is longer than `most_bytes`."""
    found = bytearray()
    async for piece in response.content.iter_any():
        found += piece
        if len(found) > most_bytes:
            return None
    return bytes(found)


@asynccontextmanager
async def reporter() -> AsyncIterator[HttpReporter]:
    """A reporter with connections of its own."""
    # No proxies or cookies of the environment; a pod that is gone leaves no connection behind.
    connector = aiohttp.TCPConnector(limit=AT_A_TIME, force_close=True)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield HttpReporter(session)
