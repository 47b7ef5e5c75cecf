"""The kubectl plugin as archives for krew, one for each platform, and the manifest that krew installs it by.

An archive holds a launcher, the modules that the plugin imports, and the packages that it depends on for each version
of Python that is supported; it runs with the Python that a user's machine has
(https://krew.sigs.k8s.io/docs/developer-guide).
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import grimp
import yaml

from hack.releasing.oci import archive
from hack.releasing.version import ROOT, Release, ReleaseError

ENTRY = "swiftlet_operator.plugin.main"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS: Mapping[str, tuple[str, ...]] = {
    "linux/amd64": ("manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux_2_28_x86_64"),
    "linux/arm64": ("manylinux_2_17_aarch64", "manylinux2014_aarch64", "manylinux_2_28_aarch64"),
    "darwin/amd64": ("macosx_10_9_x86_64", "macosx_10_12_x86_64", "macosx_10_13_x86_64", "macosx_11_0_x86_64"),
    "darwin/arm64": ("macosx_11_0_arm64",),
}
"""Platforms by krew's names, and what wheels for them are tagged with."""

_LAUNCHER = '''#!/usr/bin/env python3
"""Start `kubectl swiftlet` with what lies beside this file."""

import os
import sys

PYTHONS = {pythons!r}
here = os.path.dirname(os.path.realpath(__file__))
version = "%d.%d" % sys.version_info[:2]
if version not in PYTHONS:
    sys.exit("error: kubectl swiftlet needs Python %s, and python3 is %s" % (" or ".join(PYTHONS), version))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(here, "lib"), os.path.join(here, "lib", "python" + version)]

from swiftlet_operator.plugin.main import entry  # noqa: E402

entry()
'''


def archives(release: Release, target: Path) -> dict[str, Path]:
    """Write an archive for each platform into `target`; their paths by platform."""
    made = {}
    for platform in PLATFORMS:
        name = f"kubectl-swiftlet_v{release.version}_{platform.replace('/', '_')}.tar.gz"
        with tempfile.TemporaryDirectory() as folder:
            fill(Path(folder), platform)
            archive(Path(folder), target / name, release.time_s)
        made[platform] = target / name
    return made


def fill(folder: Path, platform: str) -> None:
    """Lay out an archive's files in a folder."""
    launcher = folder / "kubectl-swiftlet"
    launcher.write_text(_LAUNCHER.format(pythons=PYTHONS), "utf-8")
    launcher.chmod(0o755)
    shutil.copyfile(ROOT / "LICENSE", folder / "LICENSE")
    for module, path in sources().items():
        place = folder / "lib" / Path(*module.split("."))
        place = place / "__init__.py" if path.name == "__init__.py" else place.with_suffix(".py")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    for name, path in data().items():
        shutil.copyfile(path, folder / "lib" / name)
    for python in PYTHONS:
        _install(folder / "lib" / f"python{python}", platform, python)


@cache
def sources() -> Mapping[str, Path]:
    """The files of all modules that the plugin imports, directly or through others, by the modules' names."""
    graph = grimp.build_graph("swiftlet", "swiftlet_operator", cache_dir=None)
    wanted = {ENTRY, *graph.find_upstream_modules(ENTRY)}
    for name in list(wanted):
        parts = name.split(".")
        wanted |= {".".join(parts[:length]) for length in range(1, len(parts))}
    return {name: _file_of(name) for name in sorted(wanted)}


def data() -> Mapping[str, Path]:
    """The files by name that the plugin's packages read besides: data that pyproject.toml lists."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["package-data"]
    found = {}
    for package, patterns in listed.items():
        base = ROOT / ("operator" if package == "swiftlet_operator" else "services")
        for path in sorted(path for pattern in patterns for path in (base / package).glob(pattern)):
            name = path.relative_to(base)
            if path.name != "py.typed" and ".".join(name.parent.parts) in sources():
                found[name.as_posix()] = path
    return found


def _file_of(module: str) -> Path:
    base = ROOT / ("operator" if module.split(".")[0] == "swiftlet_operator" else "services")
    path = base.joinpath(*module.split("."))
    found = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not found.is_file():
        raise ReleaseError(f"the plugin imports {module}, which is no Python file; it can't be in the archive")
    return found


def _install(folder: Path, platform: str, python: str) -> None:
    """Unpack the wheels of what the plugin depends on, as locked, for a platform and a version of Python."""
    with tempfile.TemporaryDirectory() as wheels:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--require-hashes",
        ]
        command += ["--only-binary=:all:", "--python-version", python, "--implementation", "cp", "--dest", wheels]
        command += [part for tag in PLATFORMS[platform] for part in ("--platform", tag)]
        command += ["--requirement", str(ROOT / "requirements" / "plugin.txt")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ReleaseError(f"no wheels for {platform} and Python {python}: {done.stderr.strip()}")
        for wheel in sorted(Path(wheels).glob("*.whl")):
            with zipfile.ZipFile(wheel) as content:
                content.extractall(folder)


def manifest(release: Release, made: Mapping[str, Path], base_url: str) -> str:
    """Krew's manifest; `base_url` is where the archives will be."""
    platforms = []
    for platform, path in sorted(made.items()):
        system, machine = platform.split("/")
        platforms.append(
            {
                "selector": {"matchLabels": {"os": system, "arch": machine}},
                "uri": f"{base_url.rstrip('/')}/{path.name}",
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                "bin": "kubectl-swiftlet",
            }
        )
    document = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "swiftlet"},
        "spec": {
            "version": f"v{release.version}",
            "shortDescription": "Look at and look after Swiftlet object stores",
            "description": (
                "Shows the conditions, pods, rings and devices of StorageClusters, says what is\n"
                "wrong and what to do, drains pods and devices, and collects support bundles.\n"
            ),
            "caveats": f"Needs python3 on the PATH, one of: {', '.join(PYTHONS)}.\n",
            "platforms": platforms,
        },
    }
    return yaml.safe_dump(document, sort_keys=False)
