"""How connections of the native transport are made: the values of settings, without what carries them out."""

from __future__ import annotations

from typing import Literal

Mode = Literal["auto", "required", "off"]
"""The values of the setting `cluster.rdma`."""
Encryption = Literal["none", "accepted", "required"]
"""The values of the setting `cluster.encryption`."""
