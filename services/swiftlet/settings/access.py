"""Sections about access without a token or from other sites, and about rate limits."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from swiftlet.settings.base import Section

Digest = Literal["sha1", "sha256", "sha512"]
Method = Literal["GET", "HEAD", "PUT", "POST", "DELETE"]
HeaderPattern = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,128}\*?$")]
"""A header's name, or the beginning of names followed by `*`."""
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,128}$")]
Origin = Annotated[str, Field(pattern=r"^(\*|null|[a-z][a-z0-9+.-]*://[A-Za-z0-9.:\[\]_-]{1,253})$")]
Rate = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]


class TempUrlSection(Section):
    """Temporary URLs: each gives access to one object or prefix for some time, signed with a key of the account or
    container.
    """

    enabled: bool = Field(default=True, description="Whether temporary URLs are accepted.")
    methods: tuple[Method, ...] = Field(
        default=("GET", "HEAD", "PUT", "POST", "DELETE"),
        description="Methods that a temporary URL may allow; HEAD is included in GET, PUT and POST.",
    )
    allowed_digests: tuple[Digest, ...] = Field(
        default=("sha1", "sha256", "sha512"),
        min_length=1,
        description="Hash functions of signatures. Many clients sign with sha1; omit it to forbid it.",
    )
    incoming_remove_headers: tuple[HeaderPattern, ...] = Field(
        default=("X-Timestamp",),
        description="Request headers that are dropped; a name that ends with * matches all headers that begin with it.",
    )
    incoming_allow_headers: tuple[HeaderPattern, ...] = Field(
        default=(), description="Exceptions to incoming_remove_headers."
    )
    outgoing_remove_headers: tuple[HeaderPattern, ...] = Field(
        default=("X-Object-Meta-*",), description="Response headers that are removed; a name may end with *."
    )
    outgoing_allow_headers: tuple[HeaderPattern, ...] = Field(
        default=("X-Object-Meta-Public-*",), description="Exceptions to outgoing_remove_headers."
    )


class FormPostSection(Section):
    """Uploads from HTML forms, signed with the keys of temporary URLs (FormPost)."""

    enabled: bool = Field(default=True, description="Whether signed forms are accepted.")
    allowed_digests: tuple[Digest, ...] = Field(
        default=("sha1", "sha256", "sha512"),
        min_length=1,
        description="Hash functions of signatures. Many sites sign with sha1; omit it to forbid it.",
    )


class CorsSection(Section):
    """Requests by scripts of other sites, which browsers allow only where the response says so (CORS)."""

    allow_origin: tuple[Origin, ...] = Field(
        default=(),
        description="Origins allowed in every container, such as https://www.example.org, in addition to those of "
        "X-Container-Meta-Access-Control-Allow-Origin; * allows all.",
    )
    expose_headers: tuple[HeaderName, ...] = Field(
        default=(),
        description="Headers that scripts may read, in addition to the usual ones and those that a container names.",
    )
    strict: bool = Field(
        default=True,
        description="Whether responses have CORS headers only for allowed origins (strict_cors_mode in OpenStack "
        "Swift). Otherwise they have them for all origins, and only preflight requests are refused.",
    )


class RateStep(Section):
    """The rate in requests a second that applies from a container's size on."""

    size: int = Field(ge=0, description="Objects in the container.")
    rate: Rate = Field(description="Requests per second; between two sizes the rate is interpolated linearly.")


class RateLimitsSection(Section):
    """Limits of how often each account and container may be written to. Each proxy process counts for itself."""

    account_ratelimit: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = Field(
        default=0.0, description="PUT and DELETE of containers per second and account; 0 sets no limit."
    )
    container_ratelimits: tuple[RateStep, ...] = Field(
        default=(),
        description="PUT, POST, DELETE and COPY of objects per second and container, by the number of its objects: "
        "a list of size and rate. Containers below the first size have no limit; an empty list sets no limits.",
    )
    container_listing_ratelimits: tuple[RateStep, ...] = Field(
        default=(), description="Listings per second and container, in the same form."
    )
    max_sleep_time_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=60.0,
        description="Seconds for which a request may be delayed until its turn; one that would be delayed longer "
        "is refused.",
    )
    rate_buffer_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=5.0, description="Seconds of unused rate that clients may use up at once."
    )
    refuse_with: Literal[498, 429] = Field(
        default=498,
        description="Status of refused requests: 498 as in OpenStack Swift, or 429 for clients that know only "
        "that. Retry-After says when to try again.",
    )
    account_whitelist: tuple[str, ...] = Field(default=(), description="Accounts without limits, such as AUTH_backup.")
    account_blacklist: tuple[str, ...] = Field(default=(), description="Accounts whose every request is refused (497).")
    max_tracked: int = Field(
        default=10_000,
        ge=1,
        le=10_000_000,
        description="Accounts and containers whose rate is remembered; the least recently used one is forgotten first.",
    )

    @field_validator("container_ratelimits", "container_listing_ratelimits")
    @classmethod
    def _sizes_ascend(cls, steps: tuple[RateStep, ...]) -> tuple[RateStep, ...]:
        ordered = tuple(sorted(steps, key=lambda step: step.size))
        if len({step.size for step in ordered}) != len(ordered):
            raise ValueError("two entries have the same size; give each size once")
        return ordered

    @property
    def on(self) -> bool:
        """Return whether anything is limited or refused at all."""
        return bool(
            self.account_ratelimit
            or self.container_ratelimits
            or self.container_listing_ratelimits
            or self.account_blacklist
        )
