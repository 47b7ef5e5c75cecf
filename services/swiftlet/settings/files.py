"""Settings in files: read as a whole, within a limit, as YAML, with one wording for what can be wrong with a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from swiftlet.documents import read_document
from swiftlet.errors import SettingsError

_MAX_FILE_BYTES = 1024 * 1024


def read_yaml(path: Path, what: str) -> Any:
    """Return the document in a file. Raises SettingsError, in which `what` names the file's kind, when it can't be
    read.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"can't read the {what} {path}: {error.strerror or error}") from error
    if len(content) > _MAX_FILE_BYTES:
        raise SettingsError(f"{path} is larger than {_MAX_FILE_BYTES} bytes; is it the {what}?")
    try:
        return read_document(content)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
