"""Describes what is wrong with settings in sentences: which field, where it was set, what was given, what
is allowed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo

Location = tuple[str | int, ...]

_MAX_SHOWN_CHARS = 80
_SECRET_FIELDS = frozenset({"key", "hash_path_prefix", "hash_path_suffix"})


class Source:
    """Where each value comes from: the settings file unless something else is recorded."""

    def __init__(self, file: str | None) -> None:
        """`file` is the settings file's path as the operator gave it."""
        self._file = file or "defaults"
        self._noted: dict[Location, str] = {}

    def note(self, location: Location, variable: str) -> None:
        """Record that the value at `location` comes from this environment variable."""
        self._noted[location] = variable

    def of(self, location: Location) -> str:
        """Return the variable or file that set `location`."""
        for length in range(len(location), 0, -1):
            if location[:length] in self._noted:
                return self._noted[location[:length]]
        return self._file


def unknown_name(name: str, known: Sequence[str], where: str, part: str | None = None) -> str:
    """Return a sentence about an unknown name that offers the nearest known one, by comparing `part` of the name."""
    near = difflib.get_close_matches(part or name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
    return f"{name}: unknown setting in {where}; {hint}"


def describe(error: ValidationError, model: type[BaseModel], source: Source) -> list[str]:
    """Return one sentence for each problem that pydantic found."""
    return [_sentence(one, model, source) for one in error.errors(include_url=False)]


def _sentence(one: Any, model: type[BaseModel], source: Source) -> str:
    location: Location = one["loc"]
    name = _dotted(location)
    where = source.of(location)
    if one["type"] == "extra_forbidden":
        parent = _model_at(model, location[:-1])
        known = [_dotted((*location[:-1], field)) for field in parent.model_fields] if parent else []
        return unknown_name(name, known, where)
    info = _field_at(model, location)
    meaning = f" ({_first_sentence(info.description)})" if info is not None and info.description else ""
    if one["type"] == "missing":
        return f"{name}: missing in {where}; it has no default{meaning}"
    reason = str(one["ctx"]["error"]) if one["type"] == "value_error" else _lower_first(one["msg"])
    given = "" if _holds_secrets(location, one["input"]) else f" {_shown(one['input'])} in {where}"
    return f"{name}:{given or ' set in ' + where}: {reason}{meaning}"


def _dotted(location: Iterable[str | int]) -> str:
    text = ""
    for piece in location:
        text += f"[{piece}]" if isinstance(piece, int) else f".{piece}" if text else piece
    return text


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def _first_sentence(text: str) -> str:
    return text.split(". ", 1)[0].rstrip(".")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARS else text[: _MAX_SHOWN_CHARS - 3] + "..."


def _holds_secrets(location: Location, value: object) -> bool:
    """Return whether showing the value might show a secret: whole sections are never shown."""
    return bool(_SECRET_FIELDS & set(location)) or isinstance(value, (dict, BaseModel, SecretStr))


def _model_at(model: type[BaseModel], location: Location) -> type[BaseModel] | None:
    current: type[BaseModel] | None = model
    for piece in location:
        if isinstance(piece, int) or current is None:
            continue
        info = current.model_fields.get(piece)
        current = _section_in(info.annotation) if info is not None else None
    return current


def _field_at(model: type[BaseModel], location: Location) -> FieldInfo | None:
    names = [piece for piece in location if isinstance(piece, str)]
    if not names:
        return None
    parent = _model_at(model, tuple(names[:-1]))
    return parent.model_fields.get(names[-1]) if parent is not None else None


def _section_in(annotation: Any) -> type[BaseModel] | None:
    """Return the section that an annotation names, also as the item of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _section_in(argument)
        if found is not None:
            return found
    return None
