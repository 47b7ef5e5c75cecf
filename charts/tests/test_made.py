"""What the chart has from elsewhere is as it is there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

from charts.make import CHART, README, crd_files, render_readme
from swiftlet import __version__


def test_the_definitions_are_those_of_crds() -> None:
    copies = {path.name: path.read_text() for path in (CHART / "files" / "crds").glob("*")}
    assert copies == crd_files(), "run `make chart`"
    assert copies


def test_the_readme_is_current() -> None:
    assert README.read_text() == render_readme(), "run `make chart`"


def test_the_chart_has_the_version_of_what_it_installs() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__


def sections(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for part in schema.get("properties", {}).values():
        yield part
        yield from sections(part)


def test_every_value_is_described_and_every_object_knows_its_names() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values) == set(schema["properties"]) - {"global"}
    for part in sections(schema):
        assert part["description"].endswith("."), part
        if "properties" in part:
            assert part["additionalProperties"] is False, part
