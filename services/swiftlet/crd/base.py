"""What all views share: frozen, camelCase outside and snake_case inside, and the field types they are made of."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from swiftlet.crd.quantity import MAX_CHARS, PATTERN, parse_quantity
from swiftlet.errors import SettingsError


class View(BaseModel):
    """Part of a resource.

    Names that it doesn't know are passed over: the API server prunes them for the CRD that is installed, and an
    operator that is older than the CRD must go on serving what it knows.
    """

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore", validate_default=True
    )


def _check_quantity(text: str) -> str:
    try:
        parse_quantity(text)
    except SettingsError as error:
        raise ValueError(str(error)) from error
    return text


def _text_of_number(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Quantity = Annotated[str, Field(pattern=PATTERN, max_length=MAX_CHARS), AfterValidator(_check_quantity)]
"""A Kubernetes quantity as it was written; `quantity_bytes` says how much it is."""
AnyQuantity = Annotated[Quantity, BeforeValidator(_text_of_number)]
"""A quantity that may also be written as a whole number, as in `cpu: 2`."""

DnsLabel = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
ObjectName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
SecretKey = Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)]
PoolName = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=30)]
Zone = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=40)]
PartPower = Annotated[int, Field(ge=1, le=22)]
Replicas = Annotated[float, Field(ge=1, le=32)]
"""Replicas of a ring; a fraction gives that share of the partitions one more."""
MinPartHours = Annotated[int, Field(ge=0, le=720)]
Overload = Annotated[float, Field(ge=0, le=10)]


class NamedRef(View):
    """Another object in the same namespace."""

    name: ObjectName


class SecretKeyRef(View):
    """One entry of a Secret in the same namespace; each use has a default for `key`."""

    name: ObjectName
    key: SecretKey
