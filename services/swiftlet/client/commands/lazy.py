"""A group of commands that are imported when they are used, so that `--help` is quick."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    """A group with further commands, by name: module, attribute, line of help."""

    def __init__(self, *arguments: Any, later: Mapping[str, tuple[str, str, str]], **options: Any) -> None:
        """Take `later` in addition to what is added to the group itself."""
        super().__init__(*arguments, **options)
        self._later = later

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted([*super().list_commands(ctx), *self._later])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, imported if need be."""
        if cmd_name not in self._later:
            return super().get_command(ctx, cmd_name)
        module, attribute, _ = self._later[cmd_name]
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands' lines of help, without importing any."""
        rows = {name: line for name, (_, _, line) in self._later.items()}
        for name in super().list_commands(ctx):
            command = super().get_command(ctx, name)
            assert command is not None
            rows[name] = command.get_short_help_str(100)
        with formatter.section("Commands"):
            formatter.write_dl(sorted(rows.items()))
