"""The section about deleting expired objects."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from swiftlet.settings.base import Section


class ExpirerSection(Section):
    """The expirer, which runs beside the replicator and deletes objects whose X-Delete-At has passed.

    Clients don't see such objects from that second on, whether or not the expirer has deleted them; until it does they
    are listed, and take up space.
    """

    enabled: bool = Field(default=True, description="Whether this process deletes expired objects.")
    interval_s: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = Field(
        default=30.0, description="Seconds between the starts of two rounds."
    )
    delay_s: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = Field(
        default=60.0,
        description="Seconds after its expiration time when an object is deleted. The value is longer than a POST "
        "takes and than clocks differ, so that a POST in the last second that extends the time is not missed.",
    )
    takeover_s: Annotated[float, Field(gt=0, le=604_800, allow_inf_nan=False)] = Field(
        default=600.0,
        description="Additional seconds after which the next expirer takes over the work that the responsible one "
        "has not done.",
    )
    concurrency: int = Field(default=8, ge=1, le=256, description="Objects checked and deleted at a time.")
    tasks_per_second: Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)] = Field(
        default=100.0, description="Objects checked per second at most, so that clients' requests have priority."
    )
