"""The arguments of commands: each names an object, a container, or a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import click

SCHEMES = ("swift://", "swiftlet://")


@dataclass(frozen=True, slots=True)
class Remote:
    """A place in the store; without a name it is a container, without a container the account."""

    container: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f"swift://{self.container}" + (f"/{self.name}" if self.name else "")

    @property
    def is_folder(self) -> bool:
        """Whether it names what is below it: a container, or a name that ends with a slash."""
        return not self.name or self.name.endswith("/")

    @property
    def below(self) -> str:
        """How names begin that are below it, taken as a folder."""
        return self.name if self.is_folder else f"{self.name}/"


@dataclass(frozen=True, slots=True)
class Local:
    """A file or a folder of this machine, or with `-` standard input or output."""

    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def path(self) -> Path:
        """Return the file's path."""
        return Path(self.text)

    @property
    def is_stream(self) -> bool:
        """Whether it is standard input or output."""
        return self.text == "-"

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder, or is to be one."""
        return self.text.endswith("/") or self.path.is_dir()


Place: TypeAlias = Remote | Local


def place_of(text: str) -> Place:
    """Return what an argument names."""
    for scheme in SCHEMES:
        if text.startswith(scheme):
            container, _, name = text.removeprefix(scheme).partition("/")
            if name and not container:
                raise click.UsageError(f"{text} names no container: swift://CONTAINER/NAME")
            return Remote(container, name)
    return Local(text)


# Only the newest versions of click have parameter types that are generic.
class PlaceType(click.ParamType):  # type: ignore[type-arg]
    """A place in the store or on this machine."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        """Return the place that a text names."""
        return place_of(value) if isinstance(value, str) else value


class RemoteType(click.ParamType):  # type: ignore[type-arg]
    """A place in the store."""

    name = "swift://..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Remote:
        """Return the place that a text names, refused if it is not in the store."""
        place = place_of(value) if isinstance(value, str) else value
        if not isinstance(place, Remote):
            self.fail(f"{value} is not in the store: swift://CONTAINER/NAME", param, ctx)
        return place


PLACE = PlaceType()
REMOTE = RemoteType()
