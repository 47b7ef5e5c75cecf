"""Container ACLs: the text of X-Container-Read and X-Container-Write, and what it allows.

    .r:*  .r:HOST  .r:.DOMAIN  .r:-HOST     by the Referer header, in order, the last that fits decides; reading only
    .rlistings                              whom a referrer element lets read may also list
    ACCOUNT  ACCOUNT:USER                   users by the names they log in with; ACCOUNT:* is ACCOUNT
    *:USER  *:*                             that user of any account; anybody with a valid token
    ACCOUNT:ID  *:ID                        users by what Keystone's tokens show as their id, which is ACCOUNT:USER

https://docs.openstack.org/swift/latest/overview_acl.html. A Referer is whatever a client says: such elements keep
nobody out who wants in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from swiftlet.auth.identity import Identity

CONTAINER_READ = "X-Container-Read"
CONTAINER_WRITE = "X-Container-Write"
LISTINGS = ".rlistings"
_REFERRER = ".r:"
_REFERRER_WORDS = frozenset({".r", ".ref", ".referer", ".referrer"})


class InvalidAcl(ValueError):
    """An ACL that is not well-formed; the message names the element."""


def clean_acl(text: str, *, writing: bool) -> str:
    """Return the ACL in canonical form: no spaces, no empty elements, `.r:` for a referrer. Raises InvalidAcl."""
    elements = (element.strip() for element in text.split(","))
    return ",".join(_clean_element(element, writing) for element in elements if element)


def _clean_element(element: str, writing: bool) -> str:
    first, colon, second = (part.strip() for part in element.partition(":"))
    if not colon or not first.startswith("."):
        return element
    if first not in _REFERRER_WORDS:
        raise InvalidAcl(f"Unknown designator {first!r} in ACL: {element!r}")
    if writing:
        raise InvalidAcl(f"Referrers not allowed in write ACL: {element!r}")
    sign = "-" if second.startswith("-") else ""
    host = second.removeprefix("-").strip()
    if host != "*":
        host = host.removeprefix("*").strip()
    if host in {"", "."}:
        raise InvalidAcl(f"No host/domain value after referrer designation in ACL: {element!r}")
    return f"{_REFERRER}{sign}{host}"


@dataclass(frozen=True, slots=True)
class Acl:
    """A parsed container ACL."""

    referrers: tuple[str, ...] = ()
    """Hosts and domains in order, with `-` before those that are refused."""
    grantees: frozenset[str] = frozenset()
    """The elements of the ACL that are not referrers."""

    def admits_referrer(self, referer: str | None) -> bool:
        """Return whether a request with this Referer header is allowed without a token."""
        if not self.referrers:
            return False
        host, admitted = _host_of(referer), False
        for element in self.referrers:
            wanted = element.removeprefix("-")
            if _fits(host, wanted, all_hosts=wanted is element):
                admitted = wanted is element
        return admitted

    def admits(self, identity: Identity | None) -> bool:
        """Return whether the ACL names the user of a valid token."""
        return identity is not None and not self.grantees.isdisjoint(names_of(identity))


def _fits(host: str, wanted: str, *, all_hosts: bool) -> bool:
    return wanted == host or (wanted.startswith(".") and host.endswith(wanted)) or (all_hosts and wanted == "*")


def _host_of(referer: str | None) -> str:
    try:
        return urlsplit(referer or "").hostname or "unknown"
    except ValueError:
        return "unknown"


def parse_acl(text: str) -> Acl:
    """Parse a canonical ACL."""
    elements = [element for element in text.split(",") if element]
    referrers = tuple(element[len(_REFERRER) :] for element in elements if element.startswith(_REFERRER))
    return Acl(referrers, frozenset(element for element in elements if not element.startswith(_REFERRER)))


def names_of(identity: Identity) -> Iterable[str]:
    """Return all elements of ACLs that name this user."""
    account, user = identity.tenant, identity.user
    identifier = f"{account}:{user}"
    return (account, identifier, f"{account}:*", f"*:{user}", "*:*", f"{account}:{identifier}", f"*:{identifier}")
