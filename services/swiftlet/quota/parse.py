"""The quota file, in YAML:

    precise: false                    # whether usage is asked for on every write
    cache_seconds: 30                 # how long it is remembered otherwise
    levels:
      default: {container_count: 100} # for accounts without an assignment; must be there
      L1:
        container_count: 10           # containers of the account
        object_count: 1000000         # objects in each container
        container_usage_bytes: 1099511627776    # bytes in each container
        account_object_count: 5000000           # objects in all containers together
        account_usage_bytes: 2199023255552      # bytes in all containers together
    assignments:
      press: L1                       # the account as users write it

A limit that is left out does not limit. A mistake anywhere refuses the file: half of it could let an account grow, or
stop one from writing.
"""

from __future__ import annotations

from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from swiftlet.documents import read_document
from swiftlet.errors import SettingsError
from swiftlet.quota.limits import DEFAULT_LEVEL, Limits, Quotas

_MOST = 2**63 - 1
_Limit = Annotated[int, Field(ge=0, le=_MOST, strict=True)] | None
_Name = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^:/\s]+$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Level(_Part):
    container_count: _Limit = None
    object_count: _Limit = None
    container_usage_bytes: _Limit = None
    account_object_count: _Limit = None
    account_usage_bytes: _Limit = None


class _File(_Part):
    precise: Annotated[bool, Field(strict=True)] = False
    cache_seconds: Annotated[int, Field(ge=1, le=3600, strict=True)] = 30
    levels: Annotated[dict[_Name, _Level], Field(max_length=1000)]
    assignments: Annotated[dict[_Name, str], Field(max_length=100_000)] = {}


def parse_quotas(text: str, where: str) -> Quotas:
    """Parse the quota file. Raises SettingsError, which names all mistakes."""
    try:
        document = read_document(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"{where}: the file is not valid YAML: {' '.join(str(error).split())}") from error
    try:
        file = _File.model_validate(document)
    except ValidationError as error:
        raise SettingsError(f"{where}: {'; '.join(_sentence(one) for one in error.errors())}") from error
    if DEFAULT_LEVEL not in file.levels:
        raise SettingsError(f"{where}: levels must contain one named {DEFAULT_LEVEL}; leave its limits out to set none")
    for account, level in file.assignments.items():
        if level not in file.levels:
            known = ", ".join(sorted(file.levels))
            raise SettingsError(f"{where}: assignments.{account}: there is no level {level!r}; the levels are: {known}")
    levels = {name: Limits(name, **one.model_dump()) for name, one in file.levels.items()}
    return Quotas(levels, dict(file.assignments), file.precise, file.cache_seconds)


def _sentence(one: Any) -> str:
    place = ".".join(str(piece) for piece in one["loc"] if piece != "[key]") or "the file"
    reasons = {
        "extra_forbidden": "unknown field",
        "missing": "missing; it has no default",
        "model_type": "expected a mapping",
        "model_attributes_type": "expected a mapping",
        "dict_type": "expected a mapping",
    }
    return f"{place}: {reasons.get(one['type'], one['msg'][:1].lower() + one['msg'][1:])}"
