"""The chart as a package that names the released image, and its provenance.

`helm push` sends the package and the provenance beside it as one artifact of an OCI registry, and `helm install
--verify` checks it (https://helm.sh/docs/topics/provenance).
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import yaml

from hack.releasing.signing import Signer
from hack.releasing.version import ROOT, Release, ReleaseError

CHART = ROOT / "charts" / "swiftlet"


def package(helm: str, release: Release, repository: str, digest: str, target: Path) -> Path:
    """Write the chart's package into `target`: its image is `repository` by `digest`, with the tag for people."""
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(folder) / "swiftlet"
        shutil.copytree(CHART, chart)
        values = chart / "values.yaml"
        values.write_text(_with_image(values.read_text("utf-8"), repository, digest), "utf-8")
        versions = ["--version", release.version, "--app-version", release.version]
        command = [helm, "package", str(chart), *versions, "--destination", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"helm package: {done.stderr.strip()}")
    return target / f"swiftlet-{release.version}.tgz"


def _with_image(values: str, repository: str, digest: str) -> str:
    """The values with the operator's image in place of the one for trials; comments stay."""
    before = 'image:\n  repository: swiftlet\n  tag: ""\n  digest: ""\n'
    if before not in values:
        raise ReleaseError(
            "charts/swiftlet/values.yaml does not begin its image as expected; see hack/releasing/chart.py"
        )
    return values.replace(before, f'image:\n  repository: {repository}\n  tag: ""\n  digest: "{digest}"\n', 1)


def provenance_text(path: Path) -> str:
    """What is signed: the package's Chart.yaml, and the digest of the package."""
    with tarfile.open(path) as tar:
        member = tar.extractfile("swiftlet/Chart.yaml")
        assert member is not None, "helm packages have a Chart.yaml"
        about = yaml.safe_load(member.read())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{yaml.safe_dump(about)}\n...\n{yaml.safe_dump({'files': {path.name: f'sha256:{digest}'}})}"


def sign(path: Path, signer: Signer) -> Path:
    """Write the provenance of a package beside it, and return its path."""
    signed = path.with_name(f"{path.name}.prov")
    signed.write_text(signer.clear_sign(provenance_text(path)), "utf-8")
    return signed
