"""Looking at directories that may be missing, empty, or hold what is not ours."""

from __future__ import annotations

import os


def names_in(directory: str) -> list[str]:
    """What is in a directory; nothing when it is not there."""
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def numbers_in(directory: str) -> list[int]:
    """Names that are numbers, ascending."""
    return sorted(int(name) for name in names_in(directory) if name.isascii() and name.isdigit())


def is_hex(name: str, length: int) -> bool:
    """Whether a name is this many hex digits."""
    return len(name) == length and all(character in "0123456789abcdef" for character in name)


def remove_empty(directory: str, levels: int) -> None:
    """Remove a directory and its parents, `levels` in all, as long as they are empty."""
    for _ in range(levels):
        try:
            os.rmdir(directory)
        except OSError:
            return  # Not empty, which is what stops the climb; a device's real failure shows at the next call.
        directory = os.path.dirname(directory)
