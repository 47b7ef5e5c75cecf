"""What all views share: they are frozen, with names in camelCase outside and snake_case inside; and field types."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from swiftlet.errors import SettingsError
from swiftlet.quantities import MAX_CHARS, PATTERN, parse_quantity


class View(BaseModel):
    """Part of a resource.

    Unknown names are ignored: the API server prunes those that the installed CRD does not have, and an operator that is
    older than the CRD has to go on serving what it knows.
    """

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore", validate_default=True
    )

    def __deepcopy__(self, _memo: dict[int, Any] | None = None) -> Self:
        """Return the view itself: it never changes, and Pydantic would copy defaults for each resource."""
        return self


def _check_quantity(text: str) -> str:
    try:
        parse_quantity(text)
    except SettingsError as error:
        raise ValueError(str(error)) from error
    return text


def _text_of_number(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Quantity = Annotated[str, Field(pattern=PATTERN, max_length=MAX_CHARS), AfterValidator(_check_quantity)]
"""A Kubernetes quantity as it was written; `quantity_bytes` returns its value."""
AnyQuantity = Annotated[Quantity, BeforeValidator(_text_of_number)]
"""A quantity that may also be written as a whole number, as in `cpu: 2`."""

DnsLabel = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
ObjectName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
SecretKey = Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)]
PoolName = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=30)]
Zone = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=40)]
PartPower = Annotated[int, Field(ge=1, le=22)]
Replicas = Annotated[float, Field(ge=1, le=32)]
"""The number of replicas of a ring; with a fraction, that share of the partitions has one replica more."""
MinPartHours = Annotated[int, Field(ge=0, le=720)]
Overload = Annotated[float, Field(ge=0, le=10)]


class NamedRef(View):
    """Another object in the same namespace."""

    name: ObjectName


class SecretKeyRef(View):
    """One entry of a Secret in the same namespace; each use has a default for `key`."""

    name: ObjectName
    key: SecretKey
