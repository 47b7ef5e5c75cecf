"""What the chart has from elsewhere: its copy of crds/, its dashboards, and its README made from the values' schema.

python -m charts.make        write all of it anew (`make chart`)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from charts.dashboards import dashboard_files

ROOT = Path(__file__).parent.parent
CHART = ROOT / "charts" / "swiftlet"
README = CHART / "README.md"

_HEAD = """# Chart `swiftlet`

The operator of Swiftlet and its custom resource definitions. Clusters are made by `StorageCluster` objects, not by this
chart.

```console
$ helm install swiftlet charts/swiftlet --namespace swiftlet-system --create-namespace
```

A Job brings the definitions before anything else, and replaces older ones with every upgrade
(`crds.install`). They belong to no release: `helm uninstall` leaves them, and with them all clusters.
Releases of any name may stand side by side while each watches other namespaces (`watchNamespaces`).
`helm uninstall` fails, and names the ways out, while there are StorageClusters that the operator looks
after (`uninstallGuard.enabled`). `helm test` stores and fetches an object as the user of
`test.credentialsSecret`.

The operator's role covers kinds of other projects as well, which need not be there: those of the
Prometheus operator, `HTTPRoute` of the Gateway API (`spec.proxy.route`) and `Certificate` of cert-manager
(`spec.tls.certManager`). A cluster says in its conditions when it asks for one that is missing.

Made by `make chart` from `values.schema.json` and `values.yaml`.

## Values

| value | type | default | meaning |
|---|---|---|---|
"""


def crd_files() -> dict[str, str]:
    """Name and content of every file that the chart's files/crds must have."""
    return {path.name: path.read_text() for path in sorted((ROOT / "crds").glob("*.yaml"))}


def render_readme() -> str:
    """Return the chart's README, made from the schema and the default values."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    lines = (f"| `{name}` | {kind} | {default} | {text} |\n" for name, kind, default, text in rows(schema, values, ""))
    return _HEAD + "".join(lines)


def rows(schema: Mapping[str, Any], values: Any, path: str) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, default and meaning of every value below `path`, in the schema's order."""
    for name, part in schema["properties"].items():
        full = f"{path}{name}"
        known = isinstance(values, dict) and name in values
        default = values[name] if known else None
        items = part.get("items", {})
        if "properties" in part:
            yield from rows(part, default, f"{full}.")
            continue
        yield full, _type(part), f"`{json.dumps(default)}`" if known else "", part["description"]
        if items.get("properties") and "description" in next(iter(items["properties"].values())):
            yield from rows(items, None, f"{full}[].")


def _type(part: Mapping[str, Any]) -> str:
    if "enum" in part:
        return ", ".join(f"`{one}`" for one in part["enum"])
    return f"array of {part['items']['type']}s" if part["type"] == "array" else str(part["type"])


def main() -> None:
    """Write what has to be written."""
    copies = CHART / "files" / "crds"
    copies.mkdir(parents=True, exist_ok=True)
    wanted = crd_files()
    for path in copies.glob("*.yaml"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (copies / name).write_text(text)
    pages = CHART / "dashboards"
    pages.mkdir(exist_ok=True)
    for path in pages.glob("*.json"):
        if path.name not in dashboard_files():
            path.unlink()
    for name, text in dashboard_files().items():
        (pages / name).write_text(text)
    README.write_text(render_readme())


if __name__ == "__main__":
    main()
