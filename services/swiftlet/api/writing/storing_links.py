"""Stores links: new ones of any kind, and copies of a client's."""

from __future__ import annotations

from dataclasses import replace

from swiftlet.api.context.new_object import Held, NewObject
from swiftlet.api.http.content_types import check_content_type, split_link
from swiftlet.api.http.problems import ApiError
from swiftlet.api.reading.links import Link
from swiftlet.api.reading.readables import Stored


def become_link(new: NewObject, link: Link) -> None:
    """Make the new object a link."""
    new.body = Held(b"")
    new.sysmeta = link.sysmeta
    new.content_type = link.typed(check_content_type(new.content_type))


def copy_link(new: NewObject, stored: Stored, link: Link, account: str | None) -> None:
    """Make the new object a copy of a link.

    It names the same container and object: in `account`, else in the account that the link names, else in its own.
    """
    if account is not None:
        link = replace(link, target=replace(link.target, account=account), foreign=True)
    target = link.target if link.foreign else replace(link.target, account=new.path.account)
    if target == new.path:
        raise ApiError(400, "Symlink cannot target itself")
    mark = split_link(stored.info.content_type)[1]
    become_link(new, replace(link, target=target, slo_etag=None if mark is None else mark.slo_etag))
