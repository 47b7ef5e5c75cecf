"""Why a request does not go directly."""

from __future__ import annotations


class GoByHttp(Exception):
    """The direct way can't do this, or not now; a proxy can. Nothing of it was done, or it does no harm twice."""


class ShownByProxies(GoByHttp):
    """The object is not shown as it is stored: a large object, a link, or one that ends by itself."""
