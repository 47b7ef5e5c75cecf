"""Loads one service's settings from a YAML file and environment variables; all problems are in one message."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from swiftlet.errors import SettingsError
from swiftlet.settings.environment import Override, overrides
from swiftlet.settings.files import read_yaml
from swiftlet.settings.problems import Source, describe, unknown_name
from swiftlet.settings.services import SERVICES, ServiceSettings

Settings = TypeVar("Settings", bound=ServiceSettings)

CONFIG_VARIABLE = "SWIFTLET_CONFIG"
"""The variable that names the settings file when no `--config` is given."""


def load_settings(
    model: type[Settings], path: Path | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings of one service: the file's, overlaid by the environment's, checked.

    With `path` None the file is the one that SWIFTLET_CONFIG names; without that, there are defaults and environment
    alone. Raises SettingsError that lists everything wrong at once.
    """
    environ = os.environ if environ is None else environ
    if path is None and environ.get(CONFIG_VARIABLE):
        path = Path(environ[CONFIG_VARIABLE])
    source = Source(str(path) if path is not None else None)
    raw = _read(path) if path is not None else {}
    problems = _unknown_sections(raw, source)
    changes, bad_variables = overrides(environ)
    problems += bad_variables
    merged = _overlay(_only(raw, model), [one for one in changes if one.section in model.model_fields], source)
    try:
        settings = model.model_validate(merged)
    except ValidationError as error:
        problems += describe(error, model, source)
    else:
        if not problems:
            return settings
    raise SettingsError(_message(model, path, problems))


def _read(path: Path) -> dict[str, Any]:
    document = read_yaml(path, "settings file")
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise SettingsError(f"{path} must hold a mapping of sections such as 'cluster:', not a {_kind(document)}")
    return {str(key): value for key, value in document.items()}


def _kind(value: object) -> str:
    return {"list": "list", "str": "text", "int": "number", "float": "number"}.get(type(value).__name__, "value")


def _known_sections() -> list[str]:
    return sorted({name for model in SERVICES.values() for name in model.model_fields})


def _unknown_sections(raw: Mapping[str, Any], source: Source) -> list[str]:
    known = _known_sections()
    return [unknown_name(key, known, source.of((key,))) for key in raw if key not in known]


def _only(raw: Mapping[str, Any], model: type[ServiceSettings]) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key in model.model_fields and value is not None}


def _overlay(raw: dict[str, Any], changes: list[Override], source: Source) -> dict[str, Any]:
    """Return the file's sections with the variables' values in place; record in `source` where each came from."""
    merged = dict(raw)
    for change in changes:
        if change.field is None:
            merged[change.section] = change.value
            source.note((change.section,), change.variable)
            continue
        section = merged.get(change.section, {})
        if isinstance(section, dict):
            merged[change.section] = {**section, change.field: change.value}
            source.note((change.section, change.field), change.variable)
    return merged


def _message(model: type[ServiceSettings], path: Path | None, problems: list[str]) -> str:
    where = f" in {path}" if path is not None else ""
    if len(problems) == 1:
        return f"settings of {model.service}: {problems[0]}"
    listed = "".join(f"\n  - {problem}" for problem in problems)
    return f"settings of {model.service}: {len(problems)} problems{where}:{listed}"
