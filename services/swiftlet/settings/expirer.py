"""The section about deleting what has expired."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from swiftlet.settings.base import Section


class ExpirerSection(Section):
    """The expirer beside the replicator: deletes objects whose X-Delete-At has passed.

    Clients don't see such objects from that second on, whether the expirer has come by or not; until then they are
    listed, and take up space.
    """

    enabled: bool = Field(default=True, description="Whether this process deletes what has expired.")
    interval_s: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = Field(
        default=30.0, description="Seconds between the starts of two rounds."
    )
    delay_s: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = Field(
        default=60.0,
        description="Seconds after its time that an object is deleted. Longer than a POST takes and than clocks "
        "differ, so that a POST that gave it more time in its last second is not missed.",
    )
    takeover_s: Annotated[float, Field(gt=0, le=604_800, allow_inf_nan=False)] = Field(
        default=600.0,
        description="Seconds more after which the next expirer takes over what the one whose turn it is has not done.",
    )
    concurrency: int = Field(default=8, ge=1, le=256, description="Objects looked at and deleted at a time.")
    tasks_per_second: Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)] = Field(
        default=100.0, description="Objects looked at per second at most, so that clients' requests come first."
    )
