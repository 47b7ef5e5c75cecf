"""Which version a commit is, and whether it may be released."""

from __future__ import annotations

import re
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
_SEMVER = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?")


class ReleaseError(Exception):
    """The release can't be made; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Release:
    """A version, and the commit that it is made of."""

    version: str
    """Semantic version, such as 0.2.0, or 0.2.0-dev.g1a2b3c4d5e for a snapshot."""
    commit: str
    """Full object name of the commit."""
    time_s: int
    """When the commit was made, in seconds since 1970: the time of everything that has one."""

    @property
    def is_snapshot(self) -> bool:
        """Whether this is no version that was tagged."""
        return "-dev." in self.version


def declared(root: Path = ROOT) -> dict[str, str]:
    """The version as each file declares it, by the file's path."""
    module = "services/swiftlet/__init__.py"
    found = re.search(r'^__version__ = "(.*)"$', (root / module).read_text("utf-8"), re.MULTILINE)
    chart = yaml.safe_load((root / "charts/swiftlet/Chart.yaml").read_text("utf-8"))
    cargo = tomllib.loads((root / "native/Cargo.toml").read_text("utf-8"))
    return {
        module: found[1] if found else "",
        "charts/swiftlet/Chart.yaml (version)": str(chart["version"]),
        "charts/swiftlet/Chart.yaml (appVersion)": str(chart["appVersion"]),
        "native/Cargo.toml": str(cargo["workspace"]["package"]["version"]),
    }


def find_release(root: Path = ROOT, *, snapshot: bool) -> Release:
    """The release that the checked out commit is; ReleaseError when it may not be one.

    A snapshot is made of any commit. Everything else needs a clean work tree, the tag `vVERSION` on the commit, and a
    section of that version in CHANGELOG.md.
    """
    versions = declared(root)
    if len(set(versions.values())) != 1:
        told = ", ".join(f"{path}: {version}" for path, version in versions.items())
        raise ReleaseError(f"files declare different versions ({told}); make them equal")
    version = next(iter(versions.values()))
    if not _SEMVER.fullmatch(version):
        raise ReleaseError(f"{version!r} is not a semantic version such as 0.2.0")
    if _git(root, "status", "--porcelain"):
        raise ReleaseError("the work tree has changes that are not committed; commit or remove them")
    commit = _git(root, "rev-parse", "HEAD")
    time_s = int(_git(root, "show", "--no-patch", "--format=%ct", "HEAD"))
    if snapshot:
        return Release(f"{version}-dev.g{commit[:10]}", commit, time_s)
    if f"v{version}" not in _git(root, "tag", "--points-at", "HEAD").split():
        raise ReleaseError(f"the commit has no tag v{version}; git tag v{version}, or SNAPSHOT=1 for a trial")
    if f"## [{version}]" not in (root / "CHANGELOG.md").read_text("utf-8"):
        raise ReleaseError(f"CHANGELOG.md has no section [{version}]; rename *Unreleased* before the tag is made")
    return Release(version, commit, time_s)


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()
