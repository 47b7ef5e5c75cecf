"""Signs temporary URLs and forms as their users do."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from typing import Any
from urllib.parse import quote, urlencode

from swiftlet.placement.tests.cluster import ACCOUNT

KEY = "the key"


def signature(message: str, key: str = KEY, digest: str = "sha256", encoded: bool = False) -> str:
    """An HMAC in hex, or in Base64 with the digest's name."""
    mac = hmac.new(key.encode(), message.encode(), getattr(hashlib, digest))
    return f"{digest}:{base64.urlsafe_b64encode(mac.digest()).decode()}" if encoded else mac.hexdigest()


def temp_url(
    method: str,
    path: str = "c/o",
    *,
    expires: int | None = None,
    prefix: str | None = None,
    ip_range: str | None = None,
    more: str = "",
    **how: Any,
) -> str:
    """The query of a temporary URL for an object below the account."""
    expires = int(time.time()) + 60 if expires is None else expires
    container = path.partition("/")[0]
    signed = f"/v1/{ACCOUNT}/{path}" if prefix is None else f"prefix:/v1/{ACCOUNT}/{container}/{prefix}"
    message = f"{method}\n{expires}\n{signed}"
    parameters = {"temp_url_expires": str(expires)}
    if ip_range is not None:
        message = f"ip={ip_range}\n{message}"
        parameters["temp_url_ip_range"] = ip_range
    if prefix is not None:
        parameters["temp_url_prefix"] = prefix
    parameters["temp_url_sig"] = signature(message, **how)
    return urlencode(parameters, quote_via=quote) + (f"&{more}" if more else "")
