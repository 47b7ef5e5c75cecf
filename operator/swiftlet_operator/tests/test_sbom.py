"""The bill of materials: what CycloneDX asks of every document, and that all three kinds of packages are found."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]


def bill(tmp_path: Path, root: Path | None = None) -> dict[str, Any]:
    """What hack/sbom.py writes."""
    output = tmp_path / "sbom.json"
    command = [sys.executable, str(ROOT / "hack" / "sbom.py"), "--output", str(output)]
    subprocess.run([*command, *(["--root", str(root)] if root else [])], check=True, capture_output=True)
    made: dict[str, Any] = json.loads(output.read_text("utf-8"))
    return made


def image_root(tmp_path: Path) -> Path:
    """As much of an image as is looked at."""
    root = tmp_path / "root"
    status = root / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    status.write_text(
        "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.36-9+deb12u13\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1\n"
    )
    about = root / "usr/local/lib/python3.11/site-packages/aiohttp-3.0.dist-info/METADATA"
    about.parent.mkdir(parents=True)
    about.write_text("Metadata-Version: 2.4\nName: aiohttp\nVersion: 3.0\nLicense-Expression: Apache-2.0\n\nText\n")
    return root


def test_a_bill_has_what_cyclonedx_asks_for(tmp_path: Path) -> None:
    made = bill(tmp_path)

    assert (made["bomFormat"], made["specVersion"], made["version"]) == ("CycloneDX", "1.5", 1)
    assert uuid.UUID(made["serialNumber"].removeprefix("urn:uuid:")).version == 4
    references = [one["bom-ref"] for one in made["components"]]
    assert len(references) == len(set(references))
    for one in (made["metadata"]["component"], *made["components"]):
        assert one["type"] in ("library", "container")
        assert all(isinstance(one[key], str) and one[key] for key in ("name", "version", "purl"))
        assert all(set(entry) == {"license"} for entry in one.get("licenses", []))
    known = {*references, made["metadata"]["component"]["bom-ref"]}
    for edge in made["dependencies"]:
        assert {edge["ref"], *edge["dependsOn"]} <= known


def test_locked_packages_and_crates_are_in_it_and_test_crates_are_not(tmp_path: Path) -> None:
    names = {(one["purl"].partition("/")[0], one["name"]) for one in bill(tmp_path)["components"]}
    assert {("pkg:pypi", "aiohttp"), ("pkg:pypi", "kopf"), ("pkg:cargo", "pyo3")} <= names
    assert not {("pkg:cargo", "proptest"), ("pkg:pypi", "pytest")} & names


def test_an_image_has_its_own_packages_and_those_of_its_system(tmp_path: Path) -> None:
    found = {one["purl"]: one for one in bill(tmp_path, image_root(tmp_path))["components"]}
    assert "pkg:deb/debian/libc6@2.36-9+deb12u13?arch=amd64" in found
    assert found["pkg:pypi/aiohttp@3.0"]["licenses"] == [{"license": {"name": "Apache-2.0"}}]
    assert not [purl for purl in found if "/gone@" in purl]


def test_the_same_image_has_the_same_bill(tmp_path: Path) -> None:
    assert bill(tmp_path) == bill(tmp_path)
