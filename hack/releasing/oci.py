"""Image layouts of the Open Container Initiative: one for all platforms, made of one for each.

A layout is a folder with `oci-layout`, `index.json` and `blobs/sha256/` (image-spec v1.1, image-layout.md). Builders
write one for each platform; clients choose by the index which one they pull.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.releasing.version import ReleaseError

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Image:
    """An image of one platform, in a layout of its own."""

    layout: Path
    descriptor: Json
    """The descriptor of its manifest has `mediaType`, `digest`, `size` and `platform`."""

    @property
    def platform(self) -> str:
        """Return operating system and machine, such as linux/amd64."""
        about = self.descriptor["platform"]
        return f"{about['os']}/{about['architecture']}"


def blob(layout: Path, digest: str) -> Path:
    """The file of a blob."""
    kind, _, value = digest.partition(":")
    return layout / "blobs" / kind / value


def read_image(layout: Path) -> Image:
    """The only image of a layout; its platform is what its configuration says."""
    index = json.loads((layout / "index.json").read_text("utf-8"))
    if len(index["manifests"]) != 1 or index["manifests"][0].get("mediaType", MANIFEST) != MANIFEST:
        raise ReleaseError(f"{layout} holds {len(index['manifests'])} manifests, not that of one image")
    digest = index["manifests"][0]["digest"]
    manifest = json.loads(blob(layout, digest).read_bytes())
    config = json.loads(blob(layout, manifest["config"]["digest"]).read_bytes())
    platform = {key: config[key] for key in ("architecture", "os", "variant") if config.get(key)}
    size = blob(layout, digest).stat().st_size
    return Image(layout, {"mediaType": MANIFEST, "digest": digest, "size": size, "platform": platform})


def join(images: Iterable[Image], target: Path, tag: str, annotations: Mapping[str, str]) -> str:
    """Write a layout with all images under one index, which `tag` names; the index' digest is returned."""
    blobs = target / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    chosen = sorted(images, key=lambda image: image.platform)
    for image in chosen:
        for path in (image.layout / "blobs" / "sha256").iterdir():
            if not (blobs / path.name).exists():
                shutil.copyfile(path, blobs / path.name)
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [image.descriptor for image in chosen],
        "annotations": dict(annotations),
    }
    data = json.dumps(index, sort_keys=True, separators=(",", ":")).encode()
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    named = {"org.opencontainers.image.ref.name": tag}
    root = {"mediaType": INDEX, "digest": f"sha256:{digest}", "size": len(data), "annotations": named}
    (target / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [root]}), "utf-8")
    (target / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}', "utf-8")
    return f"sha256:{digest}"


def archive(folder: Path, path: Path, time_s: int) -> None:
    """Write a folder as a tar whose bytes depend on the files alone; compressed when `path` ends with .gz."""
    with path.open("wb") as raw:
        compressed = gzip.GzipFile("", "wb", 9, raw, 0) if path.suffix == ".gz" else None
        with tarfile.open(fileobj=compressed or raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for one in sorted(folder.rglob("*")):
                _add(tar, one, str(one.relative_to(folder)), time_s)
        if compressed is not None:
            compressed.close()


def _add(tar: tarfile.TarFile, path: Path, name: str, time_s: int) -> None:
    entry = tar.gettarinfo(path, name)
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = time_s
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    if entry.isfile():
        with path.open("rb") as data:
            tar.addfile(entry, data)
    else:
        tar.addfile(entry)


def extract(image: Image, target: Path, prefixes: tuple[str, ...]) -> None:
    """Write the regular files of an image's root file system whose paths begin with one of the prefixes.

    Later layers replace and remove (`.wh.` entries, image-spec layer.md) what earlier ones have.
    """
    manifest = json.loads(blob(image.layout, image.descriptor["digest"]).read_bytes())
    for layer in manifest["layers"]:
        data = blob(image.layout, layer["digest"]).read_bytes()
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:*") as tar:
            for entry in tar:
                name = entry.name.removeprefix("./").removeprefix("/")
                if ".." in Path(name).parts:
                    raise ReleaseError(f"a layer has the path {entry.name!r}")
                place = target / name
                if place.name.startswith(".wh."):
                    _remove(place)
                elif entry.isfile() and name.startswith(prefixes):
                    place.parent.mkdir(parents=True, exist_ok=True)
                    content = tar.extractfile(entry)
                    place.write_bytes(content.read() if content else b"")


def _remove(whiteout: Path) -> None:
    """Remove what a layer says is gone: one name, or (`.wh..wh..opq`) all of a folder."""
    gone = whiteout.parent if whiteout.name == ".wh..wh..opq" else whiteout.with_name(whiteout.name[4:])
    if gone.is_dir():
        shutil.rmtree(gone)
    else:
        gone.unlink(missing_ok=True)
