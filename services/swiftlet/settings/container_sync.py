"""Sections about container sync: the realms of clusters that trust each other, and copying to them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from swiftlet.settings.base import Seconds, Section


class RealmsSection(Section):
    """The realms of container sync: which clusters may write copies here, and where copies may be written."""

    file: Path | None = Field(
        default=None,
        description="The realms file, in the format of OpenStack Swift's container-sync-realms.conf. Read again when "
        "it changes. Not set: no container sync, and X-Container-Sync-To returns 501.",
    )
    current: Annotated[str, Field(pattern=r"^//[^/\s]+/[^/\s]+$")] | None = Field(
        default=None, description="The realm and cluster that this one is, as //REALM/CLUSTER; only /info shows it."
    )
    check_interval_s: Seconds = Field(
        default=5.0, description="Seconds between checks of file; changed realms take effect within this time."
    )


class ContainerSyncSection(Section):
    """Container sync beside the replicator: compares containers that have X-Container-Sync-To with their copies."""

    enabled: bool = Field(
        default=True, description="Whether this process copies containers. Nothing is copied without realms.file."
    )
    interval_s: Seconds = Field(
        default=15.0, description="Seconds between the starts of two rounds: the usual delay of a copy."
    )
    takeover_s: Seconds = Field(
        default=600.0,
        description="Seconds between two comparisons of a container by the second of the nodes that are responsible "
        "for it, twice that by the third: they verify what the first has sent, and replace it while it is away.",
    )
    verify_s: Seconds = Field(
        default=86_400.0,
        description="Seconds after which a container that has not changed since it was found equal to its copy is "
        "compared again.",
    )
    containers: int = Field(default=4, ge=1, le=64, description="Containers compared at a time.")
    concurrency: int = Field(
        default=8, ge=1, le=256, description="Objects looked up, sent or deleted at a time, over all containers."
    )
    container_time_s: Seconds = Field(
        default=60.0,
        description="Seconds after which a container makes way for others; its comparison goes on in the next round.",
    )
    timeout_s: Seconds = Field(
        default=30.0, description="Seconds without a byte after which a request to another cluster has failed."
    )
    max_pause_s: Seconds = Field(
        default=600.0,
        description="The longest pause in seconds after failures of another cluster; it doubles from interval_s on.",
    )
    ca_file: Path | None = Field(
        default=None,
        description="PEM file with the certificate authorities of the other clusters. Not set: those of the system.",
    )
