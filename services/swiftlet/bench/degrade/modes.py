"""Modes as users write them: what breaks a store, what mends it, and what tells that it is whole again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from swiftlet.bench.errors import BenchError
from swiftlet.documents import read_document
from swiftlet.settings.problems import Source, describe

MAX_MODES = 100
"""Modes of a file."""
MAX_FILE_BYTES = 1 << 20
"""Bytes of a file of modes; a larger one is refused."""
MAX_COMMAND_CHARACTERS = 10_000
"""Characters of a command."""
MAX_SECONDS = 86_400.0
"""Seconds of a phase, and of a command."""
SECONDS = 30.0
WITHIN_S = 600.0
_SUFFIX = ".yaml"
M = TypeVar("M", bound=BaseModel)

Command = Annotated[str, Field(min_length=1, max_length=MAX_COMMAND_CHARACTERS)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, populate_by_name=True)


class Mode(_Part):
    """A way to break a store."""

    name: Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$")] = Field(
        description="What results call it"
    )
    about: Annotated[str, Field(max_length=1000)] = Field(default="", description="What is broken, in a sentence")
    breaks: Command = Field(alias="break", description="Command of a shell that breaks something")
    mend: Command | None = Field(default=None, description="Command that puts it right, which always runs in the end")
    task: bool = Field(
        default=False,
        description="Instead of mend: break is a task that ends by itself, such as a restart of all pods, with a store "
        "that is whole; its phase lasts as long as it",
    )
    whole: Command | None = Field(
        default=None, description="Command that exits with 0 as soon as redundancy is complete; it runs again and again"
    )
    seconds: Annotated[float, Field(gt=0, le=MAX_SECONDS)] = Field(
        default=SECONDS, description="Seconds of each of the three phases"
    )
    within_s: Annotated[float, Field(gt=0, le=MAX_SECONDS)] = Field(
        default=WITHIN_S, description="Seconds that a command may take, and that redundancy may need to be complete"
    )

    @model_validator(mode="after")
    def _check(self) -> Mode:
        if (self.mend is None) != self.task:
            raise ValueError("needs either mend, the command that puts it right, or task: true where break ends itself")
        if self.task and self.whole is not None:
            raise ValueError("whole is for a mode with mend: a task ends when the store is whole")
        return self

    @property
    def told(self) -> str:
        """Return what results say of it: what it is about, and its commands."""
        commands = (("break", self.breaks), ("mend", self.mend), ("whole", self.whole))
        return "; ".join([*filter(None, [self.about]), *(f"{name}: {text}" for name, text in commands if text)])


class Modes(_Part):
    """A file of modes, which are measured one after the other."""

    modes: Annotated[tuple[Mode, ...], Field(max_length=MAX_MODES)] = Field(
        description="What is broken, one after the other"
    )

    @model_validator(mode="after")
    def _check(self) -> Modes:
        if not self.modes:
            raise ValueError("modes needs at least one mode")
        names = [one.name for one in self.modes]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"each mode needs a name of its own, but there are several of {', '.join(twice)}")
        return self


def shipped() -> list[str]:
    """Return the names of the files of modes that ship."""
    files = (resources.files("swiftlet.bench.degrade") / "shipped").iterdir()
    return sorted(file.name.removesuffix(_SUFFIX) for file in files if file.name.endswith(_SUFFIX))


def text_of(name: str) -> str:
    """Return the text of a file of modes that ships, or of any other; BenchError when it can't be read."""
    if name in shipped():
        return (resources.files("swiftlet.bench.degrade") / "shipped" / f"{name}{_SUFFIX}").read_text("utf-8")
    path = Path(name)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise BenchError(f"{name} is too large for a file of modes: it may have {MAX_FILE_BYTES:,} bytes")
        return path.read_text("utf-8")
    except FileNotFoundError as error:
        raise BenchError(f"there is no file {name}; files of modes that ship are: {', '.join(shipped())}") from error
    except (OSError, UnicodeError) as error:
        raise BenchError(f"{name} can't be read: {getattr(error, 'strerror', None) or error}") from error


def read_modes(name: str, chosen: Sequence[str] = (), **defaults: float) -> list[Mode]:
    """Return the modes of a file, all of them or those with these names; `defaults` are of fields that it leaves out.

    BenchError with everything that is wrong with it.
    """
    try:
        document = read_document(text_of(name))
    except yaml.YAMLError as error:
        raise BenchError(f"{name} is not valid YAML: {error}") from error
    if not isinstance(document, dict):
        raise BenchError(f"{name} must hold `modes:`, a list; `swiftlet bench modes {shipped()[0]}` has an example")
    if isinstance(modes := document.get("modes"), list):
        document["modes"] = [{**defaults, **one} if isinstance(one, dict) else one for one in modes]
    found = _checked(Modes, document, name, "the modes can't be used").modes
    if unknown := [one for one in chosen if one not in {mode.name for mode in found}]:
        known = ", ".join(mode.name for mode in found)
        raise BenchError(f"--only {unknown[0]}: {name} has no such mode; it has {known}")
    return [mode for mode in found if not chosen or mode.name in chosen]


def mode_of(fields: Mapping[str, object]) -> Mode:
    """Return a mode by its fields as a command line gives them; BenchError when they can't be used together."""
    known = {name: value for name, value in fields.items() if value is not None}
    return _checked(Mode, known, "the command line", "the mode can't be used")


def _checked(model: type[M], document: Any, where: str, problem: str) -> M:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        problems = [one.removeprefix(": ") for one in describe(error, model, Source(where))]
        raise BenchError(f"{problem}:\n  " + "\n  ".join(problems)) from error
