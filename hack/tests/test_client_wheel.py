"""The client's wheel has the client and what it shares with services, none of them, and works without them."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hack.releasing import client
from hack.releasing.version import ROOT, Release

IMPORT_ALL = """
import importlib.abc, pkgutil, sys
import swiftlet.client

class NotThere(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in missing:
            raise ModuleNotFoundError(name)

missing = {"swiftlet_native", "prometheus_client", "structlog", "yaml", "pydantic"}
sys.meta_path.insert(0, NotThere())
names = [one.name for one in pkgutil.walk_packages(swiftlet.client.__path__, "swiftlet.client.")]
plain = [name for name in names if not name.startswith("swiftlet.client.direct.")]
for name in plain:
    __import__(name)
assert len(plain) > 25, names
foreign = {name for name in sys.modules if name.startswith("swiftlet.") and not name.startswith("swiftlet.client")}
assert not foreign, foreign
login = swiftlet.client.V1(auth_url="http://a", user="u", key="k")
try:
    swiftlet.client.Client(login, swiftlet.client.Options(metadata_url="http://b"))
except swiftlet.client.ConfigurationError as error:
    assert "needs the package swiftlet-native" in str(error), error
missing.remove("swiftlet_native")
for name in names:
    __import__(name)
swiftlet.client.Client(login, swiftlet.client.Options(metadata_url="http://b"))
assert all(getattr(swiftlet.client, name) for name in dir(swiftlet.client))
assert sys.modules["swiftlet"].__file__.startswith(sys.argv[1])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    release = Release("0.1.0-dev.g0123456789", "0" * 40, 1_700_000_000)
    return client.build(tmp_path_factory.mktemp("wheel"), release)


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(folder)
    return folder


def test_the_client_is_in_it_and_what_it_shares(unpacked: Path) -> None:
    found = {path.relative_to(unpacked).as_posix() for path in (unpacked / "swiftlet").rglob("*") if path.is_file()}
    sources = ROOT / "services" / "swiftlet"
    expected = {path.relative_to(sources.parent).as_posix() for path in (sources / "client").rglob("*.py")}
    expected = {name for name in expected if "/tests/" not in name}
    expected |= {f"swiftlet/{name}" for name in ("__init__.py", "py.typed", *client.SHARED)}
    assert found == expected


def test_it_says_what_it_needs(unpacked: Path) -> None:
    (metadata,) = unpacked.glob("*.dist-info/METADATA")
    lines = metadata.read_text("utf-8").splitlines()
    needs = {line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")}
    assert needs == {"aiohttp", "click", "xxhash", 'fsspec; extra == "fsspec"', 'swiftlet-native; extra == "direct"'}
    # PEP 440's form of a snapshot.
    assert "Version: 0.1.0.dev0+g0123456789" in lines


def test_it_needs_nothing_of_the_services(unpacked: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, str(unpacked)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
