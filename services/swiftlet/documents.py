"""Documents in YAML: read and written by libyaml where PyYAML has it, which takes a fifth of the time.

Files of users and quotas may have a hundred thousand lines, and the operator reads what it has written at each look at
a cluster.
"""

from __future__ import annotations

from typing import Any

import yaml

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def read_document(content: str | bytes) -> Any:
    """Return the document as plain data. Raises YAMLError, with the line, when it is not valid YAML."""
    try:
        return yaml.load(content, Loader=_Loader)  # noqa: S506 - it is a safe loader
    except (yaml.YAMLError, UnicodeError):
        # The error of PyYAML's own loader shows the line.
        return yaml.safe_load(content)


def write_document(data: dict[str, Any] | list[Any]) -> str:
    """Return plain data as a document; names keep their order."""
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False))
