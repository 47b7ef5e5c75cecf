"""Write dist/ from images that are built: `hack/release` calls it, once before it builds them and once after.

python -m hack.releasing check  [--snapshot]
python -m hack.releasing write  [--snapshot] --repository NAME --base-url URL --sign KEY|none --helm PROGRAM
                                --layouts FOLDER... --wheels FOLDER...
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hack import sbom
from hack.releasing import chart, client, oci, olm, plugin, provenance
from hack.releasing.signing import Signer
from hack.releasing.version import ROOT, Release, ReleaseError, find_release

DIST = ROOT / "dist"
_OF_SBOM = ("var/lib/dpkg/status", "usr/local/lib/python3")
"""Paths in an image that the bill of materials is made from."""


def main(arguments: list[str] | None = None) -> int:
    """Run one of the two steps; 1 and a sentence when the release can't be made."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["check", "write"])
    parser.add_argument("--snapshot", action="store_true")
    parser.add_argument("--repository", default="swiftlet")
    parser.add_argument("--base-url", default="")
    parser.add_argument("--sign", default="none")
    parser.add_argument("--helm", default="helm")
    parser.add_argument("--layouts", nargs="+", type=Path, default=[])
    parser.add_argument("--wheels", nargs="+", type=Path, default=[])
    options = parser.parse_args(arguments)
    try:
        release = find_release(snapshot=options.snapshot)
        if options.step == "check":
            sys.stdout.write(f"{release.version} {release.time_s}\n")
        else:
            write(release, options)
    except ReleaseError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def write(release: Release, options: argparse.Namespace) -> None:
    """Write all of dist/ anew; what was there is gone first."""
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    signer = None if options.sign == "none" else Signer(options.sign)
    images = [oci.read_image(layout) for layout in options.layouts]
    digest = write_image(release, images)
    package = chart.package(options.helm, release, options.repository, digest, DIST)
    if signer is not None:
        chart.sign(package, signer)
    made = plugin.archives(release, DIST)
    client.build(DIST, release)
    for folder in options.wheels:
        client.take_native(folder, DIST)
    (DIST / "swiftlet.krew.yaml").write_text(plugin.manifest(release, made, options.base_url), "utf-8")
    with tempfile.TemporaryDirectory() as folder:
        olm.write_bundle(options.helm, package, release, f"{options.repository}@{digest}", Path(folder))
        oci.archive(Path(folder), DIST / f"swiftlet-{release.version}-olm.tar.gz", release.time_s)
    asked = {"version": release.version, "repository": options.repository, "baseUrl": options.base_url}
    provenance.write_statement(release, {**asked, "platforms": [one.platform for one in images]}, DIST)
    sums = provenance.write_sums(DIST)
    if signer is not None:
        signer.detached(sums)
    for path in sorted(DIST.iterdir()):
        sys.stdout.write(f"  {path.stat().st_size:>11,}  {path.relative_to(ROOT)}\n")


def write_image(release: Release, images: list[oci.Image]) -> str:
    """Write the image of all platforms and a bill of materials for each; the digest of its index is returned."""
    with tempfile.TemporaryDirectory() as folder:
        layout = Path(folder) / "layout"
        notes = {
            "org.opencontainers.image.revision": release.commit,
            "org.opencontainers.image.version": release.version,
        }
        digest = oci.join(images, layout, release.version, notes)
        oci.archive(layout, DIST / f"swiftlet-{release.version}-image.oci.tar", release.time_s)
        for image in images:
            root = Path(folder) / "root" / image.platform
            oci.extract(image, root, _OF_SBOM)
            name = f"swiftlet-{release.version}-{image.platform.replace('/', '_')}.cdx.json"
            (DIST / name).write_text(json.dumps(_bill(root, release), indent=1) + "\n", "utf-8")
    return digest


def _bill(root: Path, release: Release) -> dict[str, Any]:
    try:
        return sbom.bill(sbom.image_components(root), release.version)
    except LookupError as error:
        raise ReleaseError(str(error)) from error


if __name__ == "__main__":
    sys.exit(main())
