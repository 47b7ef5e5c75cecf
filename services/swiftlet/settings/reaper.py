"""The section about removing the content of deleted accounts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from swiftlet.settings.base import Section


class ReaperSection(Section):
    """The account reaper, which runs beside the replicator and removes the objects and containers of
    deleted accounts.
    """

    enabled: bool = Field(default=True, description="Whether this process deletes the contents of deleted accounts.")
    interval_s: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = Field(
        default=60.0, description="Seconds between the starts of two rounds."
    )
    delay_s: Annotated[float, Field(ge=0, le=31_536_000, allow_inf_nan=False)] = Field(
        default=86_400.0,
        description="Seconds between an account's DELETE and the deletion of its objects and containers. Until "
        "then nothing is lost, although clients see nothing of it. The account can be created again only after "
        "everything is deleted.",
    )
    takeover_s: Annotated[float, Field(gt=0, le=604_800, allow_inf_nan=False)] = Field(
        default=3_600.0,
        description="Additional seconds after which the next reaper takes over the work that the responsible one "
        "has not done.",
    )
    concurrency: int = Field(default=4, ge=1, le=256, description="Objects deleted at a time.")
    objects_per_second: Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)] = Field(
        default=100.0, description="Objects deleted per second at most, so that clients' requests have priority."
    )
