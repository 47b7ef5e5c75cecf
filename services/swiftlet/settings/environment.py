"""Settings from the environment: `SWIFTLET_<SECTION>__<FIELD>`, and `SWIFTLET_<NAME>` for the few without section.

Variables without a double underscore that are not such a name are ignored: Kubernetes itself sets
SWIFTLET_PROXY_SERVICE_HOST and the like for a Service of that name.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from swiftlet.settings.problems import unknown_name
from swiftlet.settings.services import SERVICES

PREFIX = "SWIFTLET_"
_SEPARATOR = "__"


@dataclass(frozen=True, slots=True)
class Override:
    """One variable's value for `section.field`, or for the top-level name `section` when `field` is None."""

    variable: str
    section: str
    field: str | None
    value: Any


def overrides(environ: Mapping[str, str]) -> tuple[list[Override], list[str]]:
    """Return what the environment sets for any service, and what is wrong with its variables' names or syntax."""
    found: list[Override] = []
    problems: list[str] = []
    sections = _sections()
    for variable in sorted(environ):
        if not variable.startswith(PREFIX):
            continue
        section, separator, field = variable.removeprefix(PREFIX).lower().partition(_SEPARATOR)
        if not separator:
            if section in sections and not _fields(sections[section]):
                found.append(Override(variable, section, None, _value(sections[section], environ[variable])))
            continue
        problem = _misnamed(sections, variable, section, field)
        if problem:
            problems.append(problem)
            continue
        try:
            value = _value(_fields(sections[section])[field], environ[variable])
        except yaml.YAMLError:
            problems.append(f"{variable}: the value is not valid YAML; a list is written as '[one, two]'")
            continue
        found.append(Override(variable, section, field, value))
    return found, problems


def _sections() -> dict[str, FieldInfo]:
    return {name: info for model in SERVICES.values() for name, info in model.model_fields.items()}


def _fields(info: FieldInfo) -> dict[str, FieldInfo]:
    """Return the fields of a section, none when it is a plain value."""
    annotation = info.annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation.model_fields
    return {}


def _misnamed(sections: Mapping[str, FieldInfo], variable: str, section: str, field: str) -> str | None:
    def spelled(names: list[str], before: str) -> list[str]:
        return [before + name.upper() for name in names]

    with_fields = [name for name, info in sections.items() if _fields(info)]
    if section not in with_fields:
        return unknown_name(
            variable, spelled(with_fields, PREFIX), "the environment", part=f"{PREFIX}{section.upper()}"
        )
    names = list(_fields(sections[section]))
    if field not in names:
        return unknown_name(variable, spelled(names, f"{PREFIX}{section.upper()}{_SEPARATOR}"), "the environment")
    return None


def _value(info: FieldInfo, text: str) -> Any:
    """Return the text itself, or the list that it gives as YAML where the setting is a list."""
    return yaml.safe_load(text) if _is_list(info.annotation) else text


def _is_list(annotation: Any) -> bool:
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(_is_list(one) for one in typing.get_args(annotation))
    return origin in (tuple, list)
