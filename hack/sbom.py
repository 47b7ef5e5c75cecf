"""A software bill of materials of the image, CycloneDX 1.5 in JSON.

Python packages are those of the lock that the image is installed from, or those that lie in the image's root; crates
are what Cargo.lock says the native package is linked from (no dev-dependencies); operating system packages are dpkg's
list in the image's root. Nothing is asked of a network, and the same inputs give the same file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
Component = dict[str, Any]


def component(kind: str, name: str, version: str, purl: str, license_: str = "") -> Component:
    """One entry; `purl` is its identity."""
    entry: Component = {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if license_:
        entry["licenses"] = [{"license": {"name": license_}}]
    return entry


def locked_python(lock: str) -> Iterator[Component]:
    """Packages of a requirements file with pins."""
    for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", lock, re.MULTILINE):
        yield component("library", name, version, f"pkg:pypi/{name.lower().replace('_', '-')}@{version}")


def installed_python(root: Path) -> Iterator[Component]:
    """Packages below a root, by their metadata."""
    for path in sorted(root.glob("usr/local/lib/python3*/site-packages/*.dist-info/METADATA")):
        about = Parser().parsestr(path.read_text("utf-8", "replace"), headersonly=True)
        name, version = str(about["Name"]), str(about["Version"])
        license_ = str(about["License-Expression"] or about["License"] or "").splitlines()
        purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
        yield component("library", name, version, purl, license_[0][:100] if license_ else "")


def crates(native: Path) -> Iterator[Component]:
    """Crates that the native package is linked from: Cargo.lock, followed from our own, without what only tests use."""
    lock = tomllib.loads((native / "Cargo.lock").read_text("utf-8"))["package"]
    renamed = tomllib.loads((native / "Cargo.toml").read_text("utf-8"))["workspace"].get("dependencies", {})
    manifests = [tomllib.loads(path.read_text("utf-8")) for path in sorted((native / "crates").glob("*/Cargo.toml"))]
    ours = {one["package"]["name"]: one for one in manifests}
    by_name: dict[str, list[dict[str, Any]]] = {}
    for one in lock:
        by_name.setdefault(one["name"], []).append(one)
    rest, seen = [one for name in ours for one in by_name.get(name, [])], {}
    while rest:
        one = rest.pop()
        if (one["name"], one["version"]) in seen:
            continue
        seen[one["name"], one["version"]] = one
        tests = _only_tests(ours.get(one["name"], {}), renamed)
        for wanted in one.get("dependencies", []):
            name, _, version = wanted.partition(" ")
            if name not in tests:
                rest += [o for o in by_name[name] if version in ("", o["version"])]
    for name, version in sorted(seen):
        yield component("library", name, version, f"pkg:cargo/{name}@{version}")


def _only_tests(manifest: dict[str, Any], renamed: dict[str, Any]) -> set[str]:
    """Names of crates that a manifest has among its dev-dependencies alone."""

    def names(section: str) -> set[str]:
        found = set()
        for name, about in manifest.get(section, {}).items():
            spec = renamed.get(name, about) if isinstance(about, dict) and about.get("workspace") else about
            found.add(spec.get("package", name) if isinstance(spec, dict) else name)
        return found

    return names("dev-dependencies") - names("dependencies") - names("build-dependencies")


def debian(root: Path) -> Iterator[Component]:
    """Installed packages of a Debian root."""
    status = root / "var/lib/dpkg/status"
    for stanza in status.read_text("utf-8", "replace").split("\n\n") if status.exists() else ():
        about = Parser().parsestr(stanza, headersonly=True)
        if about["Package"] and "installed" in str(about["Status"]).split():
            name, version = str(about["Package"]), str(about["Version"])
            purl = f"pkg:deb/debian/{name}@{quote(version, safe='.+-~')}?arch={about['Architecture']}"
            yield component("library", name, version, purl)


def bill(components: list[Component], version: str) -> dict[str, Any]:
    """Return the whole document."""
    unique = {one["bom-ref"]: one for one in components}
    listed = [unique[ref] for ref in sorted(unique)]
    digest = hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).digest()
    product = component("container", "swiftlet", version, f"pkg:oci/swiftlet@{version}", "Apache-2.0")
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=4)}",
        "version": 1,
        "metadata": {"component": product},
        "components": listed,
        "dependencies": [{"ref": product["bom-ref"], "dependsOn": [one["bom-ref"] for one in listed]}],
    }


def image_components(root: Path) -> list[Component]:
    """What an image is made of, by its root file system; LookupError when that has no list of Debian packages."""
    system = list(debian(root))
    if not system:
        raise LookupError(f"{root} has no list of Debian packages")
    return [*crates(ROOT / "native"), *installed_python(root), *system]


def locked_components() -> list[Component]:
    """What every image is made of, by the locks alone."""
    return [*crates(ROOT / "native"), *locked_python((ROOT / "requirements" / "operator.txt").read_text("utf-8"))]


def main(arguments: list[str] | None = None) -> int:
    """Write the bill of materials to the file that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default="", help="the image's root file system")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "sbom.json")
    options = parser.parse_args(arguments)
    try:
        found = image_components(Path(options.root)) if options.root else locked_components()
    except LookupError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    version = tomllib.loads((ROOT / "native" / "Cargo.toml").read_text("utf-8"))["workspace"]["package"]["version"]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(bill(found, version), indent=1) + "\n", "utf-8")
    kinds = {kind: sum(one["purl"].startswith(f"pkg:{kind}/") for one in found) for kind in ("pypi", "cargo", "deb")}
    sys.stderr.write(f"{options.output}: {', '.join(f'{n} {kind}' for kind, n in kinds.items())}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
