"""PUT ?extract-archive=tar|tar.gz|tar.bz2: the files of an archive become objects, one after the other.

Only data that an object server has not taken yet are held. Missing containers are created if the sender may. Names have
no special meaning: `..` and absolute paths are just names of objects.

Fault model: an archive may be cut off, broken, or a decompression bomb; names and metadata may be anything. Files
before the fault stay, and the report counts them. Each file is stored by the same code as any PUT, so an invalid name
or header is refused in the same way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from urllib.parse import quote

from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from swiftlet.api.context.core import Call
from swiftlet.api.context.expiring import DELETE_AFTER, REMOVE
from swiftlet.api.http.body import Body
from swiftlet.api.http.decompression import Allowance, BadCompression, TooLarge, decompressed
from swiftlet.api.http.metadata import OBJECT_META, canonical
from swiftlet.api.http.problems import ApiError, status_of
from swiftlet.api.http.tar_stream import BadArchive, TarEntry, TarStream
from swiftlet.api.requests import containers
from swiftlet.api.requests.bulk import EXTRACT, Tally, report_on, require_somebody
from swiftlet.api.requests.put_object import put_body
from swiftlet.errors import NotFound, SwiftletError
from swiftlet.expiry.tasks import DELETE_AT
from swiftlet.names import Path, parse_path

KINDS = {"tar": "", "tar.gz": "gz", "tar.bz2": "bz2"}
_CREATED = "Number Files Created"
_ANY_SIZE = 1 << 62
_XATTRS = ("SCHILY.xattr.user.", "LIBARCHIVE.xattr.user.")
_PASSED_ON = frozenset({DELETE_AT, DELETE_AFTER, REMOVE, "Content-Type", "X-Detect-Content-Type"})


class _BadUpload(ApiError):
    """Nothing more can be read; the current file is not stored."""


class _File:
    """One file of the archive as an object's body."""

    def __init__(self, archive: _Archive, size: int) -> None:
        self._archive = archive
        self.announced: int | None = size

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the pieces as they arrive."""
        while piece := await self._archive.read():
            yield piece


class _Archive:
    """The archive, which raises one kind of error for anything wrong with it."""

    def __init__(self, stream: TarStream) -> None:
        self._stream = stream
        self.problem: _BadUpload | None = None

    async def next_entry(self) -> TarEntry | None:
        try:
            return await self._stream.next_entry()
        except (BadArchive, BadCompression, TooLarge, ApiError) as error:
            raise self._bad(error) from error

    async def read(self) -> bytes:
        try:
            return await self._stream.read()
        except (BadArchive, BadCompression, TooLarge, ApiError) as error:
            raise self._bad(error) from error

    def _bad(self, error: BadArchive | BadCompression | TooLarge | ApiError) -> _BadUpload:
        if isinstance(error, ApiError):
            self.problem = _BadUpload(error.status, str(error))
        elif isinstance(error, TooLarge):
            self.problem = _BadUpload(413, f"Invalid Tar File: {error}")
        else:
            self.problem = _BadUpload(400, f"Invalid Tar File: {error}")
        return self.problem


async def extract(call: Call) -> web.StreamResponse:
    """Return 200 with a report; 400 for an unknown kind of archive."""
    require_somebody(call)
    kind = KINDS.get(call.query[EXTRACT].lower().strip("."))
    if kind is None:
        raise ApiError(400, f"Unsupported archive format; {EXTRACT} can be {', '.join(KINDS)}")
    body = Body(call.request, _ANY_SIZE, call.api.options.client_timeout_s)
    pieces = body.pieces()
    # This comes before the response begins, as a client may wait to be asked for its body.
    first = await anext(pieces, b"")
    section = call.api.options.bulk
    allowance = Allowance(section.max_extracted_bytes, section.max_compression_ratio)
    stream = TarStream(decompressed(_chained(first, pieces), kind, allowance))
    work = _Extraction(call, _Archive(stream), Tally(201, {_CREATED: 0}, section.max_failed_extractions))
    return await report_on(call, work.tally, work.run, "Invalid Tar File: No Valid Files", "extract")


async def _chained(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if first:
        yield first
    async for piece in rest:
        yield piece


class _Extraction:
    """The extraction of one archive."""

    def __init__(self, call: Call, archive: _Archive, tally: Tally) -> None:
        self._call = call
        self._archive = archive
        self.tally = tally
        self._section = call.api.options.bulk
        self._there: set[str] = set()
        """Containers that are known to exist, or that could not be created."""
        self._made = 0
        path = call.path
        self._base = "/".join(part for part in (path.container, (path.obj or "").rstrip("/")) if part)

    async def run(self) -> None:
        """Store all files. Raises ApiError when it ends early."""
        entries = 0
        while (entry := await self._archive.next_entry()) is not None:
            entries += 1
            if entries > self._section.max_files_per_extraction:
                raise ApiError(413, f"More than {self._section.max_files_per_extraction} entries in the archive")
            if entry.regular:
                await self._one(entry)
            if self.tally.full:
                raise ApiError(400, "Max extraction failures exceeded")

    async def _one(self, entry: TarEntry) -> None:
        name = self._name_of(entry)
        if "/" not in name:
            return
        try:
            path = self._path_of(name)
            if entry.size > self._call.api.options.limits.max_file_size:
                raise ApiError(413, "the file is larger than max_file_size")
            await self._make_container(path)
            await self._store(path, entry)
        except _BadUpload:
            raise
        except SwiftletError as error:
            if self._archive.problem is not None:
                raise self._archive.problem from error
            self.tally.failed(name, error)
            if status_of(error) == 401:
                raise
        else:
            self.tally.done(_CREATED)

    def _name_of(self, entry: TarEntry) -> str:
        """Return the name below the account: `container/object`."""
        name = entry.name.removeprefix("./").lstrip("/")
        return f"{self._base}/{name}" if self._base else name

    def _path_of(self, name: str) -> Path:
        try:
            encoded = quote(name.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise ApiError(412, "the name is not valid UTF-8") from error
        path = parse_path(f"/{quote(self._call.path.account, safe='')}/{encoded}")
        if path.obj is None:
            raise ApiError(412, "the name is empty")
        return path

    async def _make_container(self, path: Path) -> None:
        """Create the file's container if it does not exist; a failure is reported beside the file's own failure."""
        assert path.container is not None
        if path.container in self._there:
            return
        call, name = self._call, path.container
        try:
            await call.api.containers.get(path.account, name)
        except NotFound:
            if self._made >= self._section.max_containers_per_extraction:
                most = self._section.max_containers_per_extraction
                raise _BadUpload(400, f"More than {most} containers to create from tar.") from None
            home = Path(path.account, name)
            try:
                owner = await call.access.require("PUT", home)
                await call.api.rates.admit("PUT", home)
                await containers.put(self._sub_call(home, CIMultiDict(), owner))
            except SwiftletError as error:
                self._there.add(name)
                self.tally.failed(f"{path.account}/{name}", error)
                if status_of(error) == 401:
                    raise _BadUpload(401, str(error)) from error
                return
            self._made += 1
        self._there.add(name)

    async def _store(self, path: Path, entry: TarEntry) -> None:
        call = self._call
        await call.access.require("PUT", path)
        await call.api.rates.admit("PUT", path)
        await put_body(self._sub_call(path, self._headers(entry.pax)), _File(self._archive, entry.size))

    def _sub_call(self, path: Path, headers: CIMultiDict[str], owner: bool = False) -> Call:
        request = self._call.request.clone(method="PUT", headers=headers, rel_url=URL(path.quoted, encoded=True))
        return replace(self._call, request=request, path=path, query={}, owner=owner)

    def _headers(self, pax: Mapping[str, str]) -> CIMultiDict[str]:
        """Return the headers of a file's PUT: the request's, then those of the file's own attributes."""
        headers = CIMultiDict[str]()
        for name, value in self._call.request.headers.items():
            full = canonical(name)
            if full in _PASSED_ON or full.startswith(OBJECT_META):
                headers[full] = value
        for key, value in pax.items():
            attribute = next((key.removeprefix(prefix) for prefix in _XATTRS if key.startswith(prefix)), "")
            if attribute == "mime_type":
                headers["Content-Type"] = _one_line(attribute, value)
                headers.pop("X-Detect-Content-Type", None)
            elif attribute.startswith("meta."):
                headers[_header(attribute.removeprefix("meta."))] = _one_line(attribute, value)
        return headers


def _header(name: str) -> str:
    """Return an attribute's name as a header's; 400 for an invalid one."""
    if not name or not all(char.isalnum() or char in "!#$%&'*+-.^_`|~" for char in name) or not name.isascii():
        raise ApiError(400, "a metadata name in the archive contains characters that are not allowed in a header name")
    return canonical(OBJECT_META + name)


def _one_line(name: str, value: str) -> str:
    if any(ord(char) < 32 or ord(char) == 127 for char in value):
        raise ApiError(400, f"the value of {name[:64]!r} contains control characters")
    return value
