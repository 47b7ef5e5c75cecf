"""Renders a service's settings as documented YAML, with every name, its default and its meaning: the reference."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any, get_args

import yaml
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from swiftlet.settings.services import ServiceSettings

_WIDTH = 100


def render_reference(model: type[ServiceSettings]) -> str:
    """Return YAML that loads back to the defaults; settings without one are comments marked `required`."""
    head = (
        f"Settings of `swiftlet {model.service}`. Each can also be given as an environment variable, "
        "SWIFTLET_<SECTION>__<NAME>, which takes precedence; lists as YAML."
    )
    lines = _comment(head, "")
    for name, info in model.model_fields.items():
        lines += ["", *_entry(name, info, "")]
    return "\n".join(lines) + "\n"


def _entry(name: str, info: FieldInfo, indent: str) -> list[str]:
    lines = _comment(info.description or "", indent)
    section = _section(info.annotation)
    if section is None:
        return [*lines, *_value(name, info, indent)]
    listed = not isinstance(info.annotation, type)
    if listed and not info.is_required():
        return [*lines, *_listed(name, section, info.default, indent)]
    lines.append(f"{indent}{name}:")
    for index, (field, field_info) in enumerate(section.model_fields.items()):
        lines += [""] * (index > 0) + _entry(field, field_info, indent + "  ")
    return lines


def _listed(name: str, section: type[BaseModel], items: tuple[BaseModel, ...], indent: str) -> list[str]:
    """Return lines for a list of sections: what each field means, then the default items."""
    lines = []
    for field, info in section.model_fields.items():
        lines += _comment(f"{field}: {info.description}", indent)
    text = yaml.safe_dump({name: [item.model_dump(mode="json") for item in items]}, sort_keys=False)
    return lines + [indent + line for line in text.splitlines()]


def _value(name: str, info: FieldInfo, indent: str) -> list[str]:
    if info.is_required():
        return [f"{indent}# {name}:  # required"]
    if info.default is None:
        return [f"{indent}# {name}:"]
    return [f"{indent}{name}: {_scalar(info.default)}"]


def _scalar(value: Any) -> str:
    assert value is not PydanticUndefined
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, PurePath):
        value = str(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value)


def _comment(text: str, indent: str) -> list[str]:
    return [f"{indent}# {line}" for line in textwrap.wrap(text, _WIDTH - len(indent))]


def _section(annotation: Any) -> type[BaseModel] | None:
    """Return the section that an annotation names, also when it is a list of them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    candidates = (one for one in get_args(annotation) if isinstance(one, type) and issubclass(one, BaseModel))
    return next(candidates, None)


_PAGE_HEAD = """# Settings

This page lists every setting of every service with its default, unit and reason, as
`swiftlet settings SERVICE` prints them. One settings file may serve all services. `make docs` makes
this page; the texts are in `services/swiftlet/settings/`.
"""


def render_page(models: Iterable[type[ServiceSettings]]) -> str:
    """Return the reference of all services as one page of Markdown: `docs/settings.md`."""
    sections = (f"\n## {model.service}\n\n```yaml\n{render_reference(model)}```\n" for model in models)
    return _PAGE_HEAD + "".join(sections)
