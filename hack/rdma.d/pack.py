"""What machines need to run the services: interpreter, packages, native module, shared libraries; one tar file.

    .venv/bin/python hack/rdma.d/pack.py WHEEL TO.tar

`WHEEL`: the native module with RDMA. In the machine PYTHONHOME is where the tar file was unpacked, LD_LIBRARY_PATH its
`lib`. The system's own libraries and those of rdma-core are the machine's.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
STDLIB = f"lib/{VERSION}"
SITE = f"{STDLIB}/site-packages"
NATIVE = "swiftlet_native"
LEFT_OUT = frozenset({"test", "tests", "idlelib", "tkinter", "ensurepip", "site-packages", "turtledemo", "lib2to3"})
THEIRS = re.compile(r"lib(c|m|dl|rt|pthread|resolv|ibverbs|mlx5|rdmacm|nl-3|nl-route-3)\.so")
"""Libraries that belong to the machine's kernel and C library."""


def distributions(root: str) -> Iterator[importlib.metadata.Distribution]:
    """An installed distribution and all that it needs."""
    todo, seen = [root], set()
    while todo:
        name = re.split(r"[\s;<>=!~\[(]", todo.pop(), maxsplit=1)[0].lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            # For another platform, or an extra.
            continue
        yield found
        todo += [one for one in found.requires or [] if "extra ==" not in one]


def libraries(paths: list[Path]) -> set[Path]:
    """The shared libraries that these files load, without the machine's own."""
    said = subprocess.run(["ldd", *map(str, paths)], capture_output=True, text=True, check=False).stdout
    found = {Path(path) for path in re.findall(r"=> (/\S+)", said)}
    return {path for path in found if not THEIRS.match(path.name)}


def pack(wheel: Path, to: Path) -> None:
    """Write the tar file."""
    loaded: list[Path] = []
    with tarfile.open(to, "w", dereference=True) as tar:

        def add(path: Path, name: str) -> None:
            if path.is_file():
                tar.add(path, name, recursive=False)
                if ".so" in path.suffixes:
                    loaded.append(path)

        def add_tree(root: Path, name: str) -> None:
            for path in sorted(root.rglob("*")):
                inner = path.relative_to(root)
                if not LEFT_OUT & set(inner.parts) and not inner.name.startswith(("_tkinter", "libpython")):
                    add(path, f"{name}/{inner}")

        interpreter = Path(sys.executable).resolve()
        add(interpreter, "bin/python3")
        loaded.append(interpreter)
        add_tree(Path(sysconfig.get_path("stdlib")), STDLIB)
        # The suite of the client's ways is run there as well.
        for found in (*distributions("swiftlet"), *distributions("pytest"), *distributions("pytest-asyncio")):
            for file in found.files or []:
                if not file.parts[0].startswith(("..", "__editable__")) and file.parts[0] != NATIVE:
                    add(Path(str(found.locate_file(file))), f"{SITE}/{file}")
        add_tree(Path("services/swiftlet"), f"{SITE}/swiftlet")
        with tempfile.TemporaryDirectory() as unpacked, zipfile.ZipFile(wheel) as native:
            native.extractall(unpacked)
            for path in sorted((Path(unpacked) / NATIVE).iterdir()):
                if path.suffix == ".so":
                    subprocess.run(["strip", path], check=True)
                tar.add(path, f"{SITE}/{NATIVE}/{path.name}")
        for path in sorted(libraries(loaded)):
            tar.add(path, f"lib/{path.name}", recursive=False)


if __name__ == "__main__":
    pack(Path(sys.argv[1]), Path(sys.argv[2]))
