"""Settings of rounds: their speed, when a neighbour counts as failed, and the Redis that replicators share."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from swiftlet.settings.base import Seconds, Section


class RoundsSection(Section):
    """Settings of the replicator's rounds."""

    bytes_per_s: int = Field(
        default=0,
        ge=0,
        description="Bytes of objects per second that this replicator transfers at most, in both directions "
        "together; 0 for no limit. Comparisons are not counted, since they transfer little.",
    )
    link_bytes_per_s: int = Field(
        default=0,
        ge=0,
        description="Bytes of objects per second that the replicators of a region together transfer at most between it "
        "and each other region, in both directions together; 0 for no limit. Each of them takes an equal share: by the "
        "number of nodes that the ring has in its region. Give all of them the same value. The other region's "
        "replicators have a budget of their own: each region fetches what it lacks. Rebuilds of policies with erasure "
        "coding count with what they read in other regions and send there. Not counted are comparisons, and packing.",
    )
    error_suppression_limit: int = Field(
        default=10,
        ge=1,
        le=1_000_000,
        description="Exceptions in a row (refused connections and timeouts) after which a node is left out of rounds.",
    )
    error_suppression_interval_s: Seconds = Field(
        default=60.0,
        description="Seconds after its last exception for which a node stays left out, and for which reports of "
        "other replicators about it count. A node that answers a probe is back at once.",
    )
    probe_interval_s: Seconds = Field(
        default=5.0,
        description="Seconds between two probes of a node that is left out, which find out whether it is back.",
    )
    heartbeat_interval_s: Seconds = Field(
        default=5.0,
        description="Seconds between two heartbeats in Redis; a node that misses three is probed.",
    )


class RedisSection(Section):
    """The failure table, by which replicators inform each other of failed nodes."""

    url: str | None = Field(
        default=None,
        pattern=r"^rediss?://([^/@:\s]+@)?[^/@\s]+(/[0-9]{1,3})?$",
        description="URL of Redis, such as redis://host:6379/0, or rediss:// for TLS, without a password (see "
        "password_file). Not set: each replicator uses only its own exceptions.",
    )
    password_file: Path | None = Field(
        default=None, description="File with the password of Redis; read for each connection. Not set: no password."
    )
    ca_file: Path | None = Field(
        default=None,
        description="With rediss://: PEM file with the certificate authorities for Redis' certificate; read for "
        "each connection. The certificate must be for the host of the URL. Not set: the system's authorities.",
    )
    certificate_file: Path | None = Field(
        default=None,
        description="With rediss://: PEM file whose first certificate is the one that Redis must present, whatever "
        "host it is for; read for each connection. Not set: see ca_file.",
    )
    connect_timeout_s: Seconds = Field(default=1.0, description="Seconds to connect to Redis.")
    answer_timeout_s: Seconds = Field(
        default=1.0, description="Seconds to wait for an answer of Redis. Rounds never wait for Redis."
    )
