"""Settings of rounds: how fast they go, when a neighbour counts as failed, and the Redis that observers share."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from swiftlet.settings.base import Seconds, Section


class RoundsSection(Section):
    """What the replicator's rounds keep to."""

    bytes_per_s: int = Field(
        default=0,
        ge=0,
        description="Bytes of objects per second that this replicator moves at most, both ways together; 0 for no "
        "limit. What is compared is not counted: it is little.",
    )
    error_suppression_limit: int = Field(
        default=10,
        ge=1,
        le=1_000_000,
        description="Exceptions (refused connections, answers that did not come in time) in a row after which a node "
        "is left out of rounds.",
    )
    error_suppression_interval_s: Seconds = Field(
        default=60.0,
        description="Seconds after its last exception that a node stays left out, and that what other replicators say "
        "of it counts. One that answers a probe is back at once.",
    )
    probe_interval_s: Seconds = Field(
        default=5.0,
        description="Seconds between two small requests to a node that is left out, which find out whether it is back.",
    )
    heartbeat_interval_s: Seconds = Field(
        default=5.0,
        description="Seconds between two heartbeats in Redis; a node that misses three is asked whether it is there.",
    )


class RedisSection(Section):
    """What replicators tell each other of failed nodes. It may be lost at any time: nothing waits for it."""

    url: str | None = Field(
        default=None,
        pattern=r"^rediss?://([^/@:\s]+@)?[^/@\s]+(/[0-9]{1,3})?$",
        description="Redis, such as redis://host:6379/0, or rediss:// for TLS; without a password, see password_file. "
        "Not set: each replicator goes by its own exceptions alone.",
    )
    password_file: Path | None = Field(
        default=None, description="File with the password of Redis; read anew for each connection. Not set: none."
    )
    ca_file: Path | None = Field(
        default=None,
        description="With rediss://, file in PEM with the authorities that Redis' certificate may come from; read anew "
        "for each connection. The certificate must be for the host of the URL. Not set: the system's authorities.",
    )
    certificate_file: Path | None = Field(
        default=None,
        description="With rediss://, file in PEM whose first certificate is the one that Redis must present, whatever "
        "host it is for; read anew for each connection. Not set: see ca_file.",
    )
    connect_timeout_s: Seconds = Field(default=1.0, description="Seconds to connect to Redis.")
    answer_timeout_s: Seconds = Field(
        default=1.0, description="Seconds to wait for an answer of Redis. Rounds never do."
    )
