"""The collaborators of a proxy (`SwiftApi`) and one request's context (`Call`), which handlers work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar
from urllib.parse import unquote_to_bytes

from aiohttp import web
from swiftlet_native import Hasher

from swiftlet.api.context.access import Access
from swiftlet.api.context.account_cache import AccountCache
from swiftlet.api.context.container_cache import ContainerCache
from swiftlet.api.context.logins import Logins
from swiftlet.api.context.rate_limits import RateLimits
from swiftlet.api.context.revoking import Revocations
from swiftlet.api.context.shared_changes import SharedChanges
from swiftlet.api.http.listings import says_yes
from swiftlet.api.http.problems import ApiError
from swiftlet.auth.tokens import Tokens
from swiftlet.auth.users import Users
from swiftlet.boundaries.bodies import Bodies, Digester, Piece
from swiftlet.container_sync.realms import RealmsFile
from swiftlet.container_sync.registry import SyncRegistry
from swiftlet.errors import Superseded
from swiftlet.expiry.queue import ExpiryQueue
from swiftlet.names import Path
from swiftlet.placement.listings import ClusterListings
from swiftlet.placement.routing import RoutedObjects
from swiftlet.quota import QuotaFile
from swiftlet.quota.usage import RememberedUsage
from swiftlet.settings.access import CorsSection, FormPostSection, RateLimitsSection, TempUrlSection
from swiftlet.settings.bulk import BulkSection, StaticWebSection
from swiftlet.settings.linking import SymlinkSection, VersioningSection
from swiftlet.settings.policies import Policies
from swiftlet.settings.sections import EtagKind, LimitsSection, PolicySection
from swiftlet.timestamp import Timestamp, TimestampClock

T = TypeVar("T")

ATTEMPTS = 3
"""How often a write is tried, each time with a newer timestamp, when another process's clock turns out to be ahead."""


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """How the API behaves; from the settings of the same names."""

    limits: LimitsSection
    policies: Policies
    client_timeout_s: float = 60.0
    small_object_bytes: int = 1 << 20
    container_info_ttl_s: float = 10.0
    storage_url: str | None = None
    tempurl: TempUrlSection = field(default_factory=TempUrlSection)
    formpost: FormPostSection = field(default_factory=FormPostSection)
    cors: CorsSection = field(default_factory=CorsSection)
    rate_limits: RateLimitsSection = field(default_factory=RateLimitsSection)
    symlink: SymlinkSection = field(default_factory=SymlinkSection)
    versioning: VersioningSection = field(default_factory=VersioningSection)
    bulk: BulkSection = field(default_factory=BulkSection)
    static_web: StaticWebSection = field(default_factory=StaticWebSection)

    @property
    def default_policy(self) -> PolicySection:
        """Return the policy of containers created without X-Storage-Policy."""
        return self.policies.default

    def etag_kind(self, policy: int) -> EtagKind:
        """Return the kind of hash in ETags of a policy's new objects, by its index."""
        known = self.policies.at(policy)
        return "md5" if known is None else known.etag

    def policy_named(self, name: str) -> PolicySection:
        """Return the policy of that name, without regard to case; 400 for an unknown and for a deprecated one."""
        policy = self.policies.named(name)
        if policy is not None and policy.deprecated:
            raise ApiError(400, f"Storage Policy {policy.name!r} is deprecated")
        if policy is not None:
            return policy
        known = ", ".join(policy.name for policy in self.policies if not policy.deprecated)
        raise ApiError(400, f"Invalid X-Storage-Policy {name!r}; the policies here are: {known}")


class Facts(Protocol):
    """What decisions about a container and an account rest on; a proxy has it, and a metadata server."""

    @property
    def options(self) -> ApiOptions:
        """How the API behaves."""
        ...

    @property
    def containers(self) -> ContainerCache:
        """What is known of containers."""
        ...

    @property
    def accounts(self) -> AccountCache:
        """What is known of accounts."""
        ...

    @property
    def quotas(self) -> QuotaFile:
        """The quotas in force."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SwiftApi:
    """The collaborators of one proxy process; `swiftlet.main.services.swift_api` connects them."""

    listings: ClusterListings
    objects: RoutedObjects
    tokens: Tokens
    revocations: Revocations
    users: Users
    logins: Logins
    clock: TimestampClock
    options: ApiOptions
    quotas: QuotaFile
    bodies: Bodies | None
    """Memory and threads for the bodies of large uploads; with None they are read and digested in the event loop."""
    changes: SharedChanges
    """Changes that all processes forked from this one share."""
    usage: RememberedUsage
    containers: ContainerCache
    accounts: AccountCache
    expiry: ExpiryQueue
    rates: RateLimits
    realms: RealmsFile
    """The clusters whose container sync is admitted."""
    copied: SyncRegistry
    """The containers that are copied to other clusters."""

    def digester(self, hasher: Hasher) -> Digester:
        """Return what digests the rest of a large body."""
        return self.bodies.digester(hasher) if self.bodies is not None else _InLine(hasher)


class _InLine:
    """Digests in the event loop."""

    def __init__(self, hasher: Hasher) -> None:
        self._hasher = hasher

    async def update(self, piece: Piece) -> None:
        self._hasher.update(piece)

    async def finish(self) -> None:
        return

    def close(self) -> None:
        return


@dataclass(frozen=True, slots=True)
class Synced:
    """A request of another cluster's container sync; `at` is the time of the version that it brings, if it has one."""

    at: Timestamp | None


@dataclass(frozen=True, slots=True)
class Call:
    """One authorised request, with everything that its handler needs."""

    api: SwiftApi
    request: web.Request
    path: Path
    query: Mapping[str, str]
    access: Access
    """The sender's rights, for anything else that the request affects."""
    owner: bool = False
    """Whether the sender is an owner of the account in the path."""
    synced: Synced | None = None
    """Set when the sender is another cluster's container sync."""

    @property
    def container(self) -> str:
        """Return the container's name; only for calls about a container or object."""
        assert self.path.container is not None
        return self.path.container

    async def stamped(self, write: Callable[[Timestamp], Awaitable[T]]) -> T:
        """Run a write with a fresh timestamp, and again with a newer one when something with a later timestamp is
        stored.

        What another cluster's container sync brings keeps its timestamp. Raises Superseded when what is stored lies
        further ahead than clocks may differ, or is newer than what is brought.
        """
        if self.synced is not None and self.synced.at is not None:
            return await write(self.synced.at)
        clock = self.api.clock
        for _ in range(ATTEMPTS - 1):
            try:
                return await write(clock.next())
            except Superseded as error:
                if not clock.observe(error.timestamp):
                    raise
        return await write(clock.next())

    def flag(self, header: str) -> bool:
        """Return whether a header means true, in any of the forms that Swift accepts."""
        return says_yes(self.request.headers.get(header, ""))


def parse_query(raw: str) -> dict[str, str]:
    """Return the last value of each parameter, percent-decoded strictly; 400 on bad UTF-8."""
    query: dict[str, str] = {}
    for piece in raw.split("&"):
        if piece:
            name, _, value = piece.partition("=")
            known = _decode(name, name)
            query[known] = _decode(value, known)
    return query


def _decode(text: str, name: str) -> str:
    try:
        return unquote_to_bytes(text.replace("+", " ").encode("utf-8", "surrogateescape")).decode("utf-8")
    except UnicodeDecodeError as error:
        shown = name.encode("ascii", "backslashreplace").decode("ascii")[:128]
        raise ApiError(400, f'"{shown}" parameter not valid UTF-8') from error
