"""Scenarios by name or file: those that ship, and those that users write."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from swiftlet.bench.errors import BenchError
from swiftlet.bench.scenario import Scenario
from swiftlet.documents import read_document
from swiftlet.settings.problems import Source, describe

MAX_FILE_BYTES = 1 << 20
"""Bytes of a scenario file; a larger one is refused."""
_SUFFIX = ".yaml"


def shipped() -> list[str]:
    """Return the names of the scenarios that ship."""
    files = (resources.files("swiftlet.bench") / "shipped").iterdir()
    return sorted(file.name.removesuffix(_SUFFIX) for file in files if file.name.endswith(_SUFFIX))


def find(name: str, changes: Sequence[str] = ()) -> Scenario:
    """Return the scenario of that name or in that file, with changes such as `duration_s=10` or `sizes.fixed=4 KB`.

    BenchError with everything that is wrong with it.
    """
    content, where = _content(name)
    try:
        document = read_document(content)
    except yaml.YAMLError as error:
        raise BenchError(f"{where} is not valid YAML: {error}") from error
    if not isinstance(document, dict):
        raise BenchError(
            f"{where} must hold fields such as `title:` and `operations:`; `swiftlet bench show` has examples"
        )
    source = Source(where)
    for change in changes:
        location, value = _change(change)
        document = _changed(document, location, value)
        source.note(location, f"--set {change}")
    return parse(document, source)


def parse(document: Any, source: Source) -> Scenario:
    """Return the scenario of a document; BenchError with everything that is wrong with it."""
    try:
        return Scenario.model_validate(document)
    except ValidationError as error:
        problems = [problem.removeprefix(": ") for problem in describe(error, Scenario, source)]
        raise BenchError("the scenario can't be used:\n  " + "\n  ".join(problems)) from error


def text_of(name: str) -> str:
    """Return the file of a scenario."""
    return _content(name)[0]


def _content(name: str) -> tuple[str, str]:
    if name in shipped():
        return (resources.files("swiftlet.bench") / "shipped" / f"{name}{_SUFFIX}").read_text("utf-8"), name
    path = Path(name)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise BenchError(f"{name} is too large for a scenario: it may have {MAX_FILE_BYTES:,} bytes")
        return path.read_text("utf-8"), name
    except FileNotFoundError as error:
        raise BenchError(
            f"there is no scenario and no file {name}; shipped are: {', '.join(shipped())} (`swiftlet bench list`)"
        ) from error
    except (OSError, UnicodeError) as error:
        raise BenchError(f"{name} can't be read: {getattr(error, 'strerror', None) or error}") from error


def _change(text: str) -> tuple[tuple[str, ...], Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise BenchError(f"--set {text}: write FIELD=VALUE, such as --set duration_s=10")
    try:
        return tuple(name.split(".")), read_document(value)
    except yaml.YAMLError as error:
        raise BenchError(f"--set {text}: the value is not valid YAML") from error


# Fields of which there may be one: setting one takes the place of the others.
_ALTERNATIVES = (
    ("closed", "open"),
    ("duration_s", "count"),
    ("closed.connections", "closed.ramp"),
    ("sizes.fixed", "sizes.uniform", "sizes.lognormal", "sizes.weighted"),
)


def _changed(document: dict[str, Any], location: tuple[str, ...], value: Any) -> dict[str, Any]:
    changed = _put(document, location, value)
    name = ".".join(location) + "."
    for fields in _ALTERNATIVES:
        if value is not None and any(name.startswith(f"{field}.") for field in fields):
            for field in fields:
                if not name.startswith(f"{field}."):
                    _remove(changed, field.split("."))
    return changed


def _put(document: dict[str, Any], location: tuple[str, ...], value: Any) -> dict[str, Any]:
    changed = {name: dict(inner) if isinstance(inner, dict) else inner for name, inner in document.items()}
    head, rest = location[0], location[1:]
    inner = changed.get(head)
    changed[head] = _put(inner if isinstance(inner, dict) else {}, rest, value) if rest else value
    return changed


def _remove(document: dict[str, Any], location: list[str]) -> None:
    for name in location[:-1]:
        document = document.get(name) or {}
        if not isinstance(document, dict):
            return
    document.pop(location[-1], None)
