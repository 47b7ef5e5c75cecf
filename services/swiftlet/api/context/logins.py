"""Checks logins, in the same way for all protocols: failures are limited, counted and logged, secrets never are.

A secret is checked by a few separate threads with a bounded queue, because each check takes tens of milliseconds of
processor time: a client that sends many logins delays other logins, but no other requests. A process recognises a
secret that it has already found right, without a check and without a count, so that nobody who guesses can lock out a
user with the right secret. The remaining case is a user's first login at a process from the very address from which
that user's secret is being guessed.

Unknown names are not logged: they may be secrets typed in the wrong place.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import structlog
from aiohttp import web
from prometheus_client import Counter

from swiftlet.auth.failures import LoginLimit
from swiftlet.auth.users import User, Users
from swiftlet.errors import NodeBusy, Unauthorized

CHECKS_AT_ONCE = 2
"""Threads that check secrets; each takes 19 MiB while it does."""
MAX_WAITING = 64
"""The largest number of logins that wait for such a thread; the last one waits for a second or two."""
FAILED = Counter("swiftlet_logins_failed_total", "Logins refused: unknown user or wrong secret.")
_log = structlog.get_logger("auth")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Logins:
    """The logins of one process."""

    def __init__(self, users: Users, limit: LoginLimit, trusted_proxies: Sequence[Network] = ()) -> None:
        """Start without logins.

        `trusted_proxies` are networks of load balancers, whose `X-Forwarded-For` gives the address of the client.
        """
        self._users = users
        self._limit = limit
        self._trusted = tuple(trusted_proxies)
        self._threads = ThreadPoolExecutor(CHECKS_AT_ONCE, thread_name_prefix="login")
        self._checking = 0

    async def log_in(self, request: web.Request, login: str, secret: str) -> User:
        """Return the user `ACCOUNT:USER` if the secret is right. Raises Unauthorized, TooManyFailures and NodeBusy."""
        known = self._users.recognised(login, secret)
        if known is not None:
            return known
        address = client_address(request, self._trusted)
        attempt = self._limit.begin(login[:512], address)
        if self._checking >= CHECKS_AT_ONCE + MAX_WAITING:
            self._limit.forgive(attempt)
            raise NodeBusy("too many logins are being checked; try again in a few seconds")
        self._checking += 1
        try:
            checked = asyncio.get_running_loop().run_in_executor(self._threads, self._users.login, login, secret)
            checked.add_done_callback(self._done)
            user = await asyncio.shield(checked)
        except Unauthorized:
            FAILED.inc()
            _log.info("a login was refused", user=login if self._users.knows(login) else "unknown", remote=address)
            raise
        self._limit.forgive(attempt)
        return user

    def _done(self, checked: asyncio.Future[User]) -> None:
        self._checking -= 1
        if not checked.cancelled():
            checked.exception()  # The waiting request may have ended.


def client_address(request: web.Request, trusted: Sequence[Network]) -> str:
    """Return the address of a client: the connection's peer, or the last address in X-Forwarded-For that a trusted
    proxy has added.
    """
    address = request.remote or "unknown"
    forwarded = ",".join(request.headers.getall("X-Forwarded-For", ()))
    for before in reversed(forwarded.split(",")):
        if not _is_in(address, trusted) or not before.strip():
            break
        address = before.strip()
    return address


def _is_in(address: str, networks: Sequence[Network]) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(found in network for network in networks)
