"""What all settings sections share: they are frozen and refuse unknown names; and the types of their fields."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[float, Field(gt=0, le=366 * 86_400, allow_inf_nan=False)]
DeviceName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
"""The name of a directory below the service's `devices_dir`, which is also the device's name in the ring."""
Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9.:_-]{1,253}$")]

MIB = 1024 * 1024


class Section(BaseModel):
    """A frozen group of settings that refuses unknown names."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
