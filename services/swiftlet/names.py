"""Names of accounts, containers and objects, and the hash that places them.

Limits are the published Swift defaults. A request path is parsed here and nowhere else: it is percent-decoded once,
strictly as UTF-8, and never normalised (an object may be called `..` or `a//b`; it never becomes a path on a file
system, only a hash does).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

from swiftlet.errors import EmptyName, InvalidName, NameTooLong

MAX_ACCOUNT_NAME = 256
"""The limit of an account's name, in bytes of UTF-8."""
MAX_CONTAINER_NAME = 256
"""The limit of a container's name, in bytes of UTF-8."""
MAX_OBJECT_NAME = 1024
"""The limit of an object's name, in bytes of UTF-8."""


@dataclass(frozen=True, slots=True)
class Path:
    """The resource of a request: an account, a container in it, or an object in that."""

    account: str
    container: str | None = None
    obj: str | None = None

    def __str__(self) -> str:
        """Return the path as `/account[/container[/object]]`, unquoted."""
        return "/" + "/".join(part for part in (self.account, self.container, self.obj) if part is not None)

    @property
    def quoted(self) -> str:
        """Return the path percent-encoded for a URL."""
        return quote(str(self), safe="/~")


def decode(text: str) -> str:
    """Percent-decode one piece of a URL strictly. Raises InvalidName for broken escapes, bad UTF-8 or NUL."""
    index = text.find("%")
    while index >= 0:
        escape = text[index + 1 : index + 3]
        if len(escape) != 2 or not all(c in "0123456789abcdefABCDEF" for c in escape):
            raise InvalidName(f"'%{escape}' in the path is not a percent-encoded byte; write '%25' for '%'")
        index = text.find("%", index + 1)
    try:
        name = unquote_to_bytes(text.encode("utf-8", "surrogateescape")).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidName("Invalid UTF8 or contains NULL") from error
    if "\0" in name:
        raise InvalidName("Invalid UTF8 or contains NULL")
    return name


def _check(kind: str, name: str, limit: int) -> None:
    size = len(name.encode("utf-8"))
    if size > limit:
        raise NameTooLong(f"{kind} name length of {size} longer than {limit}")


def parse_path(raw: str) -> Path:
    """Parse the path behind `/v1`: `/account[/container[/object]]`, as it was in the request line.

    `raw` carries no query. A trailing slash behind an account or container is ignored. Raises InvalidName with what is
    wrong: an empty account or container, a name over its limit, bad encoding.
    """
    if not raw.startswith("/"):
        raise InvalidName("Bad URL")
    pieces = raw[1:].split("/", 2)
    account = decode(pieces[0])
    if not account:
        raise EmptyName("the account in the path has no name") if len(pieces) > 1 else InvalidName("Bad URL")
    _check("Account", account, MAX_ACCOUNT_NAME)
    if len(pieces) == 1 or (len(pieces) == 2 and not pieces[1]):
        return Path(account)
    container = decode(pieces[1])
    if not container:
        raise EmptyName("the container in the path has no name")
    if "/" in container:
        raise InvalidName("a container name can't contain '/' (%2F)")
    _check("Container", container, MAX_CONTAINER_NAME)
    if "/" in account:
        raise InvalidName("an account name can't contain '/' (%2F)")
    if len(pieces) == 2 or not pieces[2]:
        return Path(account, container)
    obj = decode(pieces[2])
    _check("Object", obj, MAX_OBJECT_NAME)
    return Path(account, container, obj)


@dataclass(frozen=True, slots=True)
class HashPath:
    """Maps names to 16-byte digests: MD5(prefix + "/account/container/object" + suffix), as in OpenStack Swift.

    The prefix and suffix are secrets of the cluster, fixed for its life: without them a client can't choose names that
    all fall into one partition. MD5 spreads names here; it protects nothing.
    """

    prefix: bytes = b""
    suffix: bytes = b""

    def __call__(self, account: str, container: str | None = None, obj: str | None = None) -> bytes:
        """Return the digest of an account's, container's or object's name."""
        text = str(Path(account, container, obj)).encode("utf-8")
        return hashlib.md5(self.prefix + text + self.suffix, usedforsecurity=False).digest()

    def of(self, path: Path) -> bytes:
        """Return the digest of a parsed path."""
        return self(path.account, path.container, path.obj)
