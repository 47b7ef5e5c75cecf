"""Limits of accounts and containers, their usage as a proxy remembers it, and whether something fits.

The quota file and the limits that it gives an account belong here. Where the file comes from (in Kubernetes the
operator writes it from a StorageQuota) and refusing requests don't.
"""

from swiftlet.quota.limits import Limits, Quotas
from swiftlet.quota.parse import parse_quotas
from swiftlet.quota.reload import QuotaFile

__all__ = ["Limits", "QuotaFile", "Quotas", "parse_quotas"]
