"""The command line for users: `swiftlet cp`, `ls`, `cat`, `stat`, `rm` and `sync`.

Each command is a module, which is imported when the command is used. What they share is in `shared` (options, errors,
exit codes), `places` (what arguments name), `trees` (folders and prefixes) and `terminal` (progress). Exit codes: 0, or
1 when anything failed, 2 for wrong usage, 130 for Ctrl-C, 141 when nobody reads the output any more.
"""

from __future__ import annotations

_ROOM = "swiftlet.client.commands"
COMMANDS: dict[str, tuple[str, str, str]] = {
    "cat": (f"{_ROOM}.cat", "cat", "Write objects to standard output."),
    "cp": (f"{_ROOM}.cp", "cp", "Copy files and objects, to a store, from it, or within it."),
    "ls": (f"{_ROOM}.ls", "ls", "List containers and objects."),
    "rm": (f"{_ROOM}.rm", "rm", "Delete objects and containers."),
    "stat": (f"{_ROOM}.stat", "stat", "Show what the store knows of an object, a container or the account."),
    "sync": (f"{_ROOM}.sync", "sync", "Make a prefix equal to a folder, or a folder equal to a prefix."),
}
"""By name: module, attribute, line of help."""
