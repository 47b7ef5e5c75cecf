"""The client's own wheel beside the oldest packages that it names: other people's environments have such.

Without the native module, so over HTTP alone.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from e2e.clients.conftest import Run, random_file
from hack.releasing import client

ENVIRONMENT = Path(__file__).parents[2] / ".cache" / "client-oldest" / "venv"
"""Made by `hack/setup --tests`."""
SIZES = {"empty": 0, "small": 10_000, "long": 3_000_000}
FILE_SYSTEM = """
import fsspec, multiprocessing, os

files = fsspec.filesystem("swiftlet")
files.mkdir("swiftlet://oldest")
data = os.urandom(5_000_000)
files.pipe("swiftlet://oldest/piped", data)
assert files.cat("swiftlet://oldest/piped") == data
with files.open("swiftlet://oldest/written", "wb") as file:
    for _ in range(8):
        file.write(data)
with files.open("swiftlet://oldest/written", "rb") as file:
    file.seek(5_001_000)
    assert file.read(2_000_000) == data[1_000:2_001_000]

def read_in_child():
    assert files.cat("swiftlet://oldest/piped") == data

child = multiprocessing.get_context("fork").Process(target=read_in_child)
child.start()
child.join(60)
assert child.exitcode == 0, child.exitcode
files.cp("swiftlet://oldest/piped", "swiftlet://oldest/copied")
assert sorted(files.ls("swiftlet://oldest", detail=False)) == ["oldest/copied", "oldest/piped", "oldest/written"]
files.rm("swiftlet://oldest", recursive=True)
assert not files.exists("swiftlet://oldest/piped")
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the client's wheel; where the environment's programs are."""
    built = client.build(tmp_path_factory.mktemp("wheel"))
    pip = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-q", "--no-deps", "--no-index", "--force-reinstall", str(built)], check=True)
    # What the wheel asks for is there, in versions that it allows.
    subprocess.run([*pip, "check"], check=True)
    return ENVIRONMENT / "bin"


@pytest.mark.parametrize("name", SIZES)
def test_files_go_there_and_back(name: str, programs: Path, run: Run, tmp_path: Path) -> None:
    file, back = tmp_path / "file", tmp_path / "back"
    random_file(file, SIZES[name], 5)
    swiftlet = programs / "swiftlet"
    run(swiftlet, "cp", "--create", file, f"swift://oldest-files/{name}")
    assert name in run(swiftlet, "ls", "swift://oldest-files")
    run(swiftlet, "cp", f"swift://oldest-files/{name}", back)
    assert back.read_bytes() == file.read_bytes()
    run(swiftlet, "rm", f"swift://oldest-files/{name}")


def test_the_file_system(programs: Path, run: Run) -> None:
    run(programs / "python", "-I", "-W", "error::ResourceWarning", "-c", FILE_SYSTEM)
