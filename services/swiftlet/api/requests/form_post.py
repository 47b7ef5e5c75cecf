"""Uploads from HTML forms (FormPost): a signed multipart/form-data POST whose files become objects, one after another.

https://docs.openstack.org/swift/latest/middleware.html#formpost. Files are stored as they arrive, in bounded memory and
without temporary files. Fields count only before the first file. The redirect is covered by the signature, and a form
with an invalid signature redirects nobody.

Fault model: the client may send anything and stop anywhere, and is unknown before the first file: until the signature
has been checked, a form has few parts and few bytes, and nothing of a file is read. Files before the one that failed
stay.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from html import escape
from urllib.parse import quote

from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from swiftlet.api.context.access import SignedAccess
from swiftlet.api.context.core import Call, SwiftApi
from swiftlet.api.context.reports import status_line
from swiftlet.api.http.body import Body
from swiftlet.api.http.multipart import BadForm, Multipart, Part, parse_parameters
from swiftlet.api.http.problems import ApiError, status_of
from swiftlet.api.login.signing_keys import access_by
from swiftlet.api.requests.put_object import put_body
from swiftlet.auth.signatures import parse_signature
from swiftlet.errors import InvalidName, SwiftletError
from swiftlet.names import Path, decode, parse_path

MAX_VALUE = 4096
"""Bytes of a field that are read, as in the reference; the rest is skipped."""
MAX_FIELDS = 100
"""The largest number of parts of a form that are not files, whether they have a name or not."""
MAX_BYTES_BEFORE_FILES = 1 << 20
"""The largest number of bytes of a form before its first file, where the signature is checked."""
_ANY_SIZE = 1 << 62
_NUMBERS = ("max_file_size", "max_file_count", "expires")


def is_form(request: web.Request) -> bool:
    """Return whether a request is a form: POST with multipart/form-data."""
    return request.method == "POST" and "boundary" in _boundary_of(request)


def _boundary_of(request: web.Request) -> Mapping[str, str]:
    kind, parameters = parse_parameters(request.headers.get("Content-Type", ""))
    return parameters if kind == "multipart/form-data" else {}


@dataclass(slots=True)
class Form:
    """The fields before the first file."""

    fields: dict[str, str] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """Return a field that must be a whole number; 0 when it is missing."""
        text = self.fields.get(name, "").strip()
        if not text:
            return 0
        if not (text.isascii() and text.isdigit()) or len(text) > 18:
            raise FormError(400, f"{name} not an integer")
        return int(text)

    def message(self, path: str) -> str:
        """Return the text that must have been signed."""
        redirect = self.fields.get("redirect", "")
        return "\n".join([path, redirect, *(self.fields.get(name) or "0" for name in _NUMBERS)])


class FormError(ApiError):
    """An error response for the whole form, instead of its redirect."""

    def __init__(self, status: int, reason: str) -> None:
        """`reason` in the reference's words."""
        super().__init__(status, f"FormPost: {reason}")


class _FormFile:
    """One file of a form as the body of an object."""

    announced: int | None = None

    def __init__(self, document: Multipart, form_limit: int, cluster_limit: int) -> None:
        self._document = document
        self._form_limit = form_limit
        self._cluster_limit = cluster_limit

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the pieces as they arrive.

        Raises 400 for more than the form allows or an incomplete form, 413 for an object that is too large.
        """
        size = 0
        while True:
            try:
                piece = await self._document.read()
            except BadForm as error:
                raise FormError(400, str(error)) from error
            if not piece:
                return
            size += len(piece)
            if size > self._form_limit:
                raise FormError(400, "max_file_size exceeded")
            if size > self._cluster_limit:
                raise ApiError(413, f"Your request is too large: the limit of a file is {self._cluster_limit} bytes")
            yield piece


@dataclass(frozen=True, slots=True)
class _Outcome:
    status: int = 400
    message: str = "no files to process"
    error: SwiftletError | None = None
    """The error of the file that could not be stored."""


class FormPost:
    """The handling of one form."""

    def __init__(self, api: SwiftApi, request: web.Request, path: Path) -> None:
        """Handle a form for `path`, a container or a prefix of names in it."""
        self._api = api
        self._request = request
        self._path = path
        self._signed_path = decode(request.rel_url.raw_path)
        self._form = Form()
        self._parts = 0
        """How many parts that are not files have begun."""
        self._access: SignedAccess | None = None

    async def answer(self) -> web.StreamResponse:
        """Store the files and answer for all of them: the first failure's status, 201, or 303 to the redirect."""
        try:
            outcome = await self._take_in()
        except BadForm as error:
            raise FormError(400, str(error)) from error
        redirect = self._form.fields.get("redirect")
        if not redirect:
            return _plain(outcome)
        await self._authorize()
        return _redirected(redirect, outcome)

    async def _take_in(self) -> _Outcome:
        options = self._api.options
        body = Body(self._request, _ANY_SIZE, options.client_timeout_s)
        document = Multipart(body.pieces(), _boundary_of(self._request)["boundary"])
        outcome, files = _Outcome(), 0
        while (part := await document.next_part()) is not None:
            # A piece may hold many parts; other requests get their turns in between.
            await asyncio.sleep(0)
            filename = part.parameters.get("filename") if part.disposition == "form-data" else None
            if not filename:
                await self._take_field(document, part, before_files=not files)
                continue
            files += 1
            if files > self._form.number("max_file_count"):
                return _Outcome(400, "max file count exceeded")
            outcome = await self._take_file(document, part, filename)
            if outcome.status // 100 != 2:
                break
        return outcome

    async def _take_field(self, document: Multipart, part: Part, before_files: bool) -> None:
        self._parts += 1
        if self._parts > MAX_FIELDS:
            raise BadForm(f"a form can have at most {MAX_FIELDS} fields")
        value = bytearray()
        while data := await document.read():
            value += data[: MAX_VALUE - len(value)]
            if before_files and document.taken > MAX_BYTES_BEFORE_FILES:
                raise BadForm(f"the fields before the first file are larger than {MAX_BYTES_BEFORE_FILES} bytes")
        name = part.parameters.get("name")
        if name is None or not before_files:
            return
        try:
            self._form.fields[name.lower()] = bytes(value).rstrip(b"\r\n").decode()
        except UnicodeDecodeError as error:
            raise BadForm(f"field {name[:64]!r} is not valid UTF-8") from error

    async def _take_file(self, document: Multipart, part: Part, filename: str) -> _Outcome:
        limit = self._form.number("max_file_size")
        headers = self._headers(part)
        access = await self._authorize()
        base = Path(self._path.account, self._path.container)
        try:
            path = parse_path(f"{base.quoted}/{quote((self._path.obj or '') + filename, safe='')}")
            request = self._request.clone(method="PUT", headers=headers, rel_url=URL(path.quoted, encoded=True))
            call = Call(self._api, request, path, {}, access)
            await self._api.rates.admit("PUT", path)
            stored = await put_body(call, _FormFile(document, limit, self._api.options.limits.max_file_size))
        except FormError:
            raise
        except SwiftletError as error:
            return _Outcome(status_of(error), "", error)
        return _Outcome(stored.status, "")

    def _headers(self, part: Part) -> CIMultiDict[str]:
        """Return the headers of a file's PUT: from the form's fields, else from the file's own headers."""
        fields = self._form.fields
        headers = CIMultiDict[str]()
        for name in ("content-type", "content-encoding"):
            value = fields.get(name) or part.headers.get(name)
            if value:
                headers[name.title()] = _one_line(value)
        for name, what in (("x_delete_at", "Unix timestamp"), ("x_delete_after", "Number of seconds")):
            if name in fields:
                text = fields[name].strip()
                if not (text.isascii() and text.isdigit()) or len(text) > 18:
                    raise FormError(400, f"{name} not an integer: {what} required.")
                headers[name.replace("_", "-").title()] = text
        return headers

    async def _authorize(self) -> SignedAccess:
        """Return the rights of the key; 401 unless one of the account's or container's has signed the form, and it is
        still valid.
        """
        if self._access is not None:
            return self._access
        if self._form.number("expires") < time.time():
            raise FormError(401, "Form Expired")
        signature = parse_signature(self._form.fields.get("signature", ""), self._api.options.formpost.allowed_digests)
        if signature is None or self._path.container is None:
            raise FormError(401, "Invalid Signature")
        account, container, messages = self._path.account, self._path.container, [self._form.message(self._signed_path)]
        if await access_by(self._api, account, container, signature, messages) is None:
            raise FormError(401, "Invalid Signature")
        self._access = SignedAccess(account, container)
        return self._access


def _one_line(value: str) -> str:
    if any(ord(char) < 32 or ord(char) == 127 for char in value):
        raise FormError(400, "the value of a header contains control characters")
    return value


def _plain(outcome: _Outcome) -> web.Response:
    if outcome.error is not None:
        raise outcome.error
    text = status_line(outcome.status)
    if outcome.message:
        text = f"{text}\r\nFormPost: {outcome.message.title()}"
    return web.Response(status=outcome.status, text=text)


def _redirected(redirect: str, outcome: _Outcome) -> web.Response:
    """Return 303; what could end the header or the link is percent-encoded."""
    separator = "&" if "?" in redirect else "?"
    target = quote(redirect, safe="!#$%&'()*+,/:;=?@[]~") + separator
    target += f"status={outcome.status}&message={quote(outcome.message)}"
    link = f'<html><body><p><a href="{escape(target)}">Click to continue...</a></p></body></html>'
    return web.Response(status=303, text=link, content_type="text/html", headers={"Location": target})


async def post(api: SwiftApi, request: web.Request, path: Path) -> web.StreamResponse:
    """Answer the POST of a form to a container or to a prefix in it."""
    try:
        return await FormPost(api, request, path).answer()
    except InvalidName as error:
        raise FormError(400, str(error)) from error
