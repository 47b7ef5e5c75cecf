"""Asks the pods of a cluster, by their IPs, for reports, and for rings and sealed keys that the cluster has lost.

The pod itself says where to ask: its containers are named after their services. A service with a port called
`management` is asked there in plain HTTP, others at their first port, of which the readiness probe says whether it
speaks TLS. Certificates are not verified: the address is an IP, no secret is sent, and the answers are fingerprints and
counts.

Fault model: pods are away, refuse, hang, answer with errors, with too much or with nonsense. Each of these means no
report of that service and no ring, within the time limit, and changes nothing about the others. A ring has a digest,
and a sealed copy of keys the code of the operator that sealed it.
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
        """Return the reports of those services of the pods that answer; never raises for one that doesn't."""
        ...

    async def ring(self, pods: Sequence[Manifest], ring: str) -> Ring | None:
        """Return a ring from the first of these pods that hands it out; None when none does."""
        ...

    async def sealed_keys(self, pods: Sequence[Manifest]) -> Sequence[bytes]:
        """Return the sealed copies of the keys that these pods hand out; never raises for a pod that has none."""
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """The address at which one service of one pod is asked."""

    pod: str
    service: str
    url: str


def questions(pod: Manifest, path: str = PATH) -> list[Question]:
    """Return where the services of a pod answer to `path`: nowhere before it has an address or after it has ended."""
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
        """Allow a pod `timeout_s` for its report from when it is its turn, and `ring_timeout_s` for a ring."""
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
                _log.warning(
                    "the ring %s from the service %s in the pod %s is damaged: %s",
                    ring,
                    question.service,
                    question.pod,
                    error,
                )
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
            _log.debug("the service %s in the pod %s did not answer: %r", question.service, question.pod, error)
            return None


def _copies(body: bytes) -> list[bytes]:
    """Return the sealed copies in an answer; none when it is malformed."""
    try:
        return [base64.b64decode(text, validate=True) for text in json.loads(body)["copies"].values()]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return []


async def _limited(response: aiohttp.ClientResponse, most_bytes: int) -> bytes | None:
    """Return the body, None when it is longer than `most_bytes`."""
    found = bytearray()
    async for piece in response.content.iter_any():
        found += piece
        if len(found) > most_bytes:
            return None
    return bytes(found)


@asynccontextmanager
async def reporter() -> AsyncIterator[HttpReporter]:
    """Yield a reporter with connections of its own."""
    # Proxies and cookies of the environment are not used; no connection is kept, as pods come and go.
    connector = aiohttp.TCPConnector(limit=AT_A_TIME, force_close=True)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield HttpReporter(session)
