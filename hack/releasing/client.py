"""The client as a wheel of its own, without the code of any service.

python -m hack.releasing.client FOLDER

It has the package `swiftlet` with `client` in it, and what decides about replicas, which direct access shares with
proxies. The project's own wheel, which only images are made of, has the client too: an environment has one of the two.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from hack.releasing.version import ROOT, Release, ReleaseError, declared

_DEFINITION = Path(__file__).with_name("client.toml")
_SERVICES = ROOT / "services"
SHARED = (
    "boundaries/__init__.py",
    "boundaries/objects.py",
    "context.py",
    "errors.py",
    "formats.py",
    "model.py",
    "names.py",
    "native_values.py",
    "placement/__init__.py",
    "placement/copies.py",
    "placement/early.py",
    "placement/fanout.py",
    "placement/health.py",
    "placement/hedges.py",
    "placement/objects.py",
    "placement/outcomes.py",
    "placement/owed.py",
    "placement/plan.py",
    "placement/quorums.py",
    "placement/rings.py",
    "placement/transfers.py",
    "placement/write_plan.py",
    "policy_moves.py",
    "ring/__init__.py",
    "ring/balance.py",
    "ring/builder.py",
    "ring/codec.py",
    "ring/deal.py",
    "ring/lookup.py",
    "ring/model.py",
    "ring/patterns.py",
    "ring/plan.py",
    "ring/rebalance.py",
    "ring/topology.py",
    "segments.py",
    "timestamp.py",
    "transport/__init__.py",
    "transport/modes.py",
    "transport/names.py",
    "transport/native_caller.py",
    "transport/native_calls.py",
    "transport/native_group.py",
    "transport/native_many.py",
    "transport/native_replicas.py",
    "transport/native_writes.py",
    "transport/wire.py",
)
"""The modules that the direct way uses: what is decided about replicas, and calls to object servers."""
_BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


def build(target: Path, release: Release | None = None) -> Path:
    """Write the wheel into a folder; its path. A release's wheel depends on its commit alone."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        _lay_out(source, release)
        times = {} if release is None else {"SOURCE_DATE_EPOCH": str(release.time_s)}
        made = source / "made"
        made.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", _BUILD, str(made)],
            cwd=source,
            env={**os.environ, **times},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise ReleaseError(f"the client's wheel can't be built: {done.stderr}")
        (wheel,) = made.glob("*.whl")
        return Path(shutil.move(wheel, target / wheel.name))


def take_native(folder: Path, target: Path) -> Path:
    """Copy the one native wheel in a folder, which the image of a platform was made with; the path of the copy.

    Direct access needs it beside the client's wheel. Its version is the one that files declare, of snapshots as well.
    ReleaseError if it is another one, if there is not exactly one wheel, or if other machines could not install it.
    """
    found = sorted(folder.glob("*.whl"))
    if len(found) != 1:
        raise ReleaseError(f"{folder} has {len(found)} wheels, not one; remove it and start again")
    name, version, _, abi, platform = found[0].stem.split("-")
    if (name, version) != ("swiftlet_native", native_version()):
        raise ReleaseError(f"{found[0].name} is not swiftlet_native {native_version()}; remove it and start again")
    if abi != "abi3" or not platform.startswith("manylinux"):
        raise ReleaseError(f"{found[0].name} is for machines like this one; build it without --compatibility linux")
    return Path(shutil.copy(found[0], target))


def native_version() -> str:
    """The version of the native package that the client goes with."""
    return declared()["native/Cargo.toml"]


def _lay_out(source: Path, release: Release | None) -> None:
    """Copy what the wheel consists of."""
    definition = _DEFINITION.read_text("utf-8")
    # They call each other by one version's names and types.
    pinned = definition.replace('"swiftlet-native"', f'"swiftlet-native=={native_version()}"')
    (source / "pyproject.toml").write_text(pinned, "utf-8")
    shutil.copy(ROOT / "LICENSE", source)
    shutil.copy(ROOT / "requirements" / "client.in", source / "requirements.in")
    package = source / "swiftlet"
    shutil.copytree(
        _SERVICES / "swiftlet" / "client", package / "client", ignore=shutil.ignore_patterns("tests", "__pycache__")
    )
    for name in ("__init__.py", "py.typed", *SHARED):
        (package / name).parent.mkdir(exist_ok=True)
        shutil.copy(_SERVICES / "swiftlet" / name, package / name)
    if release is not None and release.is_snapshot:
        module = package / "__init__.py"
        version, _, commit = release.version.partition("-dev.")
        declared = f'__version__ = "{version}'
        text = module.read_text("utf-8").replace(f'{declared}"', f'{declared}.dev0+{commit}"')
        module.write_text(text, "utf-8")


if __name__ == "__main__":
    sys.stdout.write(f"{build(Path(sys.argv[1]))}\n")
