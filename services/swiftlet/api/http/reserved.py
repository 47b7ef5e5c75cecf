"""Names that only the proxy creates: a container's hidden one for versions, and the versions in it.

They begin with a NUL. Names from clients go through `swiftlet.names.decode`, which refuses a NUL in any form, so nobody
can request, list or put such names into a manifest. A path with such a name therefore needs no check of its own: the
code that created it has checked the right to what it stands for.

A version is called `NUL OBJECT NUL TIME`. The time is inverted (2^64 - 1 less the timestamp, 20 decimal digits), so
that a listing has an object's versions together, the newest first.
"""

from __future__ import annotations

from swiftlet.names import Path
from swiftlet.timestamp import MAX_VALUE, Timestamp

MARK = "\0"
BEHIND_ALL = MARK + "\U0010ffff"
"""Sorts after every reserved name and before every other."""
BEHIND_TIMES = ":"
"""Sorts after every digit."""
_VERSIONS = f"{MARK}versions{MARK}"
_TOP = (1 << 64) - 1
_DIGITS = 20


def is_reserved(path: Path) -> bool:
    """Return whether the proxy created this path."""
    return path.container is not None and path.container.startswith(MARK)


def versions_container(container: str) -> str:
    """Return the hidden container for versions of what is in `container`."""
    return _VERSIONS + container


def main_container(container: str) -> str:
    """Return the container that a hidden one belongs to."""
    return container.removeprefix(_VERSIONS)


def version_name(obj: str, version: Timestamp) -> str:
    """Return a version's name in the hidden container."""
    return f"{MARK}{obj}{MARK}{_TOP - version.value:0{_DIGITS}d}"


def version_path(path: Path, version: Timestamp) -> Path:
    """Return the path of a version of the object `path`."""
    assert path.container is not None
    assert path.obj is not None
    return Path(path.account, versions_container(path.container), version_name(path.obj, version))


def split_version(name: str) -> tuple[str, Timestamp] | None:
    """Return the object and the version that a name in a hidden container stands for; None for any other name."""
    mark, _, rest = name.partition(MARK)
    obj, separator, turned = rest.rpartition(MARK)
    if mark or not separator or len(turned) != _DIGITS or not (turned.isascii() and turned.isdigit()):
        return None
    value = _TOP - int(turned)
    return (obj, Timestamp(value)) if 0 <= value <= MAX_VALUE else None


def version_of(path: Path) -> tuple[Path, Timestamp] | None:
    """Return the object and the version that a path stands for; None for a path that a client could name."""
    split = split_version(path.obj) if is_reserved(path) and path.obj is not None else None
    if split is None:
        return None
    assert path.container is not None
    return Path(path.account, main_container(path.container), split[0]), split[1]
