"""Asking all pods of a cluster at once how they are: `GET /statusz` of every service, by the pod's IP.

Where to ask is read from the pod itself: its containers are named as their services are, and a container's readiness
probe says whether its port speaks TLS. Certificates are not verified: we come by IP, tell nothing, and what is answered
is fingerprints and counts.

Fault model: pods are away, refuse, hang, answer with errors, with too much or with nonsense. Each of these is no
report of that service, within the time limit, and changes nothing about the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import aiohttp

from swiftlet_operator.manifests import Manifest, name_of
from swiftlet_operator.reports import SERVICES, Report, Reports, parse_report

PATH = "/statusz"
TIMEOUT_S = 2.0
AT_A_TIME = 64
MAX_BYTES = 64 * 1024
_OVER = frozenset({"Failed", "Succeeded"})

_log = logging.getLogger(__name__)


class Reporter(Protocol):
    """Who asks pods for their reports."""

    async def reports(self, pods: Sequence[Manifest]) -> Reports:
        """What those of the pods' services say that answer; never raises for one that doesn't."""
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """Where one service of one pod is asked."""

    pod: str
    service: str
    url: str


def questions(pod: Manifest) -> list[Question]:
    """What there is to ask a pod: nothing before it has an address or when it is over."""
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
        probe = (container.get("readinessProbe") or {}).get("httpGet") or {}
        scheme = "https" if probe.get("scheme") == "HTTPS" else "http"
        url = f"{scheme}://{host}:{ports[0]['containerPort']}{PATH}"
        found.append(Question(name_of(pod), container["name"], url))
    return found


class HttpReporter:
    """Asks over HTTP."""

    def __init__(self, session: aiohttp.ClientSession, timeout_s: float = TIMEOUT_S) -> None:
        """`session` limits how many are asked at a time; each has `timeout_s` from when it is its turn."""
        self._session = session
        self._timeout_s = timeout_s
        self._turns = asyncio.Semaphore(AT_A_TIME)

    async def reports(self, pods: Sequence[Manifest]) -> Reports:
        asked = [question for pod in pods for question in questions(pod)]
        answers = await asyncio.gather(*(self._ask(question) for question in asked))
        found: dict[str, dict[str, Report]] = {}
        for question, report in zip(asked, answers, strict=True):
            if report is not None:
                found.setdefault(question.pod, {})[question.service] = report
        return found

    async def _ask(self, question: Question) -> Report | None:
        try:
            async with (
                self._turns,
                asyncio.timeout(self._timeout_s),
                self._session.get(question.url, ssl=False, allow_redirects=False) as response,
            ):
                body = await _limited(response) if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            _log.debug("no report of %s in %s: %r", question.service, question.pod, error)
            return None
        return parse_report(question.service, body) if body is not None else None


async def _limited(response: aiohttp.ClientResponse) -> bytes | None:
    """The body, None when there is too much of it."""
    found = bytearray()
    async for piece in response.content.iter_any():
        found += piece
        if len(found) > MAX_BYTES:
            return None
    return bytes(found)


@asynccontextmanager
async def reporter() -> AsyncIterator[HttpReporter]:
    """A reporter with connections of its own."""
    # No proxies or cookies of the environment; a pod that is gone leaves no connection behind.
    connector = aiohttp.TCPConnector(limit=AT_A_TIME, force_close=True)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield HttpReporter(session)
