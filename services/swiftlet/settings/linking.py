"""Sections about objects that refer to other objects: symbolic links, and versions."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from swiftlet.settings.base import Section


class SymlinkSection(Section):
    """Symbolic links: objects that refer to other objects."""

    symloop_max: Annotated[int, Field(ge=1, le=10)] = Field(
        default=2, description="Symbolic links that are followed in a row; a longer chain is refused (409)."
    )


class VersioningSection(Section):
    """Versioning: containers that keep what is overwritten or deleted."""

    allow_object_versioning: bool = Field(
        default=True,
        description="Whether X-Versions-Enabled is accepted. Containers that have it already keep versions in any "
        "case.",
    )
    allow_versioned_writes: bool = Field(
        default=True,
        description="Whether X-Versions-Location and X-History-Location are accepted, and containers that have "
        "them copy overwritten objects to their archive container.",
    )
    agreement_s: Annotated[float, Field(ge=0, le=60, allow_inf_nan=False)] = Field(
        default=1.0,
        description="Seconds after which all proxies know that a container's versioning has changed; the request "
        "that changes it takes this long. Each process checks a container that it writes to once in this time; 0 "
        "checks before every write.",
    )
