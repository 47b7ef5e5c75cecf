"""The client's wheel has the client and what it shares with services, none of them, and works without them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hack.releasing import client
from hack.releasing.version import ROOT, Release, ReleaseError

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
    native = f'swiftlet-native=={client.native_version()}; extra == "direct"'
    # Just what `e2e/clients/test_oldest_packages.py` tries.
    pinned = (ROOT / "requirements" / "client-oldest.txt").read_text("utf-8")
    oldest = dict(re.findall(r"^([\w-]+)==(\S+)", pinned, re.MULTILINE))
    plain = {f"{name}>={oldest[name]}" for name in ("aiohttp", "click", "xxhash")}
    assert needs == {*plain, f'fsspec>={oldest["fsspec"]}; extra == "fsspec"', native}
    # PEP 440's form of a snapshot.
    assert "Version: 0.1.0.dev0+g0123456789" in lines


def test_it_needs_nothing_of_the_services(unpacked: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, str(unpacked)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def native_wheel(folder: Path, version: str = "", platform: str = "manylinux_2_34_x86_64") -> str:
    name = f"swiftlet_native-{version or client.native_version()}-cp311-abi3-{platform}.whl"
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(platform.encode())
    return name


def test_the_native_wheel_of_a_platform_is_taken(tmp_path: Path) -> None:
    name = native_wheel(tmp_path / "amd64")
    taken = client.take_native(tmp_path / "amd64", tmp_path)
    assert (taken, taken.read_bytes()) == (tmp_path / name, b"manylinux_2_34_x86_64")


@pytest.mark.parametrize(
    ("versions", "platform", "told"),
    [
        ((), "", "has 0 wheels, not one"),
        (("", "9.9.9"), "manylinux_2_34_x86_64", "has 2 wheels, not one"),
        (("9.9.9",), "manylinux_2_34_x86_64", "9.9.9-cp311-abi3-manylinux_2_34_x86_64.whl is not swiftlet_native"),
        (("",), "linux_x86_64", "is for machines like this one"),
    ],
)
def test_any_other_is_refused(tmp_path: Path, versions: tuple[str, ...], platform: str, told: str) -> None:
    folder = tmp_path / "amd64"
    folder.mkdir()
    for version in versions:
        native_wheel(folder, version, platform)
    with pytest.raises(ReleaseError, match=told):
        client.take_native(folder, tmp_path)
    assert list(tmp_path.glob("*.whl")) == []
