"""The sections about access without a token, from other sites, and how often."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from swiftlet.settings.base import Section

Digest = Literal["sha1", "sha256", "sha512"]
Method = Literal["GET", "HEAD", "PUT", "POST", "DELETE"]
HeaderPattern = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,128}\*?$")]
"""A header's name, or the beginning of names with `*` behind it."""
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,128}$")]
Origin = Annotated[str, Field(pattern=r"^(\*|null|[a-z][a-z0-9+.-]*://[A-Za-z0-9.:\[\]_-]{1,253})$")]
Rate = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]


class TempUrlSection(Section):
    """URLs that are good for one object or prefix for some time, signed with a key of the account or container."""

    enabled: bool = Field(default=True, description="Whether temporary URLs are accepted.")
    methods: tuple[Method, ...] = Field(
        default=("GET", "HEAD", "PUT", "POST", "DELETE"),
        description="Methods that a temporary URL may allow; HEAD comes with GET, PUT and POST.",
    )
    allowed_digests: tuple[Digest, ...] = Field(
        default=("sha1", "sha256", "sha512"),
        min_length=1,
        description="Hash functions of signatures. sha1 is what many clients sign with; leave it out to forbid it.",
    )
    incoming_remove_headers: tuple[HeaderPattern, ...] = Field(
        default=("X-Timestamp",),
        description="Headers of requests that are dropped unread; a name that ends with * means all that begin so.",
    )
    incoming_allow_headers: tuple[HeaderPattern, ...] = Field(
        default=(), description="Exceptions to incoming_remove_headers."
    )
    outgoing_remove_headers: tuple[HeaderPattern, ...] = Field(
        default=("X-Object-Meta-*",), description="Headers left out of answers; a name may end with *."
    )
    outgoing_allow_headers: tuple[HeaderPattern, ...] = Field(
        default=("X-Object-Meta-Public-*",), description="Exceptions to outgoing_remove_headers."
    )


class FormPostSection(Section):
    """Uploads from HTML forms, signed with the keys of temporary URLs."""

    enabled: bool = Field(default=True, description="Whether signed forms are accepted.")
    allowed_digests: tuple[Digest, ...] = Field(
        default=("sha1", "sha256", "sha512"),
        min_length=1,
        description="Hash functions of signatures. sha1 is what many sites sign with; leave it out to forbid it.",
    )


class CorsSection(Section):
    """Scripts of other sites, which browsers let in only where the answer says so (CORS)."""

    allow_origin: tuple[Origin, ...] = Field(
        default=(),
        description="Origins allowed in every container, such as https://www.example.org, beside those of "
        "X-Container-Meta-Access-Control-Allow-Origin; * for all.",
    )
    expose_headers: tuple[HeaderName, ...] = Field(
        default=(), description="Headers that scripts may read, beside the usual ones and those that a container names."
    )
    strict: bool = Field(
        default=True,
        description="Whether answers carry CORS headers only for allowed origins (strict_cors_mode in OpenStack "
        "Swift). Otherwise they do for all, and only pre-flights are refused.",
    )


class RateStep(Section):
    """From a container's size on, how many requests a second."""

    size: int = Field(ge=0, description="Objects in the container.")
    rate: Rate = Field(description="Requests a second; between two steps the rate changes evenly.")


class RateLimitsSection(Section):
    """How often each account and container may be written to. Counted by each proxy process for itself."""

    account_ratelimit: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = Field(
        default=0.0, description="PUT and DELETE of containers a second, per account; 0 sets no limit."
    )
    container_ratelimits: tuple[RateStep, ...] = Field(
        default=(),
        description="PUT, POST, DELETE and COPY of objects a second, per container, by the number of its objects: a "
        "list of size and rate. Below the first size there is no limit; empty for none at all.",
    )
    container_listing_ratelimits: tuple[RateStep, ...] = Field(
        default=(), description="Listings a second, per container, in the same form."
    )
    max_sleep_time_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=60.0,
        description="Seconds that a request is held back until its turn comes; one that would wait longer is refused.",
    )
    rate_buffer_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=5.0, description="Seconds of unused rate that may be caught up with at once."
    )
    refuse_with: Literal[498, 429] = Field(
        default=498,
        description="Status of refused requests: 498 as in OpenStack Swift, or 429 for clients that know only that. "
        "Retry-After says when to come back.",
    )
    account_whitelist: tuple[str, ...] = Field(default=(), description="Accounts without limits, such as AUTH_backup.")
    account_blacklist: tuple[str, ...] = Field(default=(), description="Accounts that are refused everything (497).")
    max_tracked: int = Field(
        default=10_000,
        ge=1,
        le=10_000_000,
        description="Accounts and containers whose use is remembered; the one not used for longest is forgotten first.",
    )

    @field_validator("container_ratelimits", "container_listing_ratelimits")
    @classmethod
    def _sizes_ascend(cls, steps: tuple[RateStep, ...]) -> tuple[RateStep, ...]:
        ordered = tuple(sorted(steps, key=lambda step: step.size))
        if len({step.size for step in ordered}) != len(ordered):
            raise ValueError("two steps have the same size")
        return ordered

    @property
    def on(self) -> bool:
        """Whether anything is limited or refused at all."""
        return bool(
            self.account_ratelimit
            or self.container_ratelimits
            or self.container_listing_ratelimits
            or self.account_blacklist
        )
